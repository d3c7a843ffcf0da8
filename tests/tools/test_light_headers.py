"""The light headers answer as PyTorch's own: the same source is built against both, and every answer is compared."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tools import compilation
from tools.build import Builder, BuiltExtension
from tools.candidate import Candidate
from tools.inline_request import InlineRequest
from tools.toolchain import find_toolchain

SOURCE = (Path(__file__).parent / "light" / "interface.cpp").read_text()
FUNCTIONS = (
    *("numbers", "words", "allocated", "viewed", "copied", "dispatched", "dispatched_all", "dispatched_floating"),
    *("typed_pointers", "checked", "optional_bias", "three", "two", "arguments", "undefined", "of_type", "nothing"),
    *("item", "throws"),
)


def build(text: str, functions: tuple[str, ...] | None, **arguments: Any) -> BuiltExtension:
    named = None if functions is None else {name: name for name in functions}
    request = InlineRequest(name="light", cpp_sources=(text,), functions=named, **arguments)
    return Builder(find_toolchain()).build(request, Candidate(text))


def loaded(built: BuiltExtension) -> ModuleType:
    spec = importlib.util.spec_from_file_location(built.module_name, built.library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The module built against the light headers, and the same against PyTorch's."""
    light = build(SOURCE, FUNCTIONS)
    assert light.report.path_taken == "light"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "lacks_light_headers", lambda _: True)
        heavy = build(SOURCE + "// heavy\n", FUNCTIONS)
    assert heavy.report.path_taken != "light"
    yield loaded(light), loaded(heavy)


def described(value: Any) -> Any:
    """A value as something that `==` compares: tensors with what is known of them."""
    if isinstance(value, torch.Tensor):
        facts = (value.dtype, value.shape, value.stride(), value.storage_offset(), str(value.device))
        return (*facts, value.requires_grad, value.tolist())
    if isinstance(value, list | tuple):
        return (type(value), [described(item) for item in value])
    return (type(value), value)


def outcome(function: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]]) -> Any:
    given = arguments()
    try:
        answer = described(function(*given))
    except Exception as error:
        answer = (type(error), str(error).split("\nException raised from", 1)[0].splitlines()[0])
    return answer, [described(item) for item in given]


def matrix(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(6).reshape(2, 3).to(dtype)


CALLS: list[tuple[str, Callable[[], tuple[Any, ...]]]] = [
    *[(name, lambda: (matrix(),)) for name in FUNCTIONS[:5]],
    *[(name, lambda: (matrix(torch.float64),)) for name in ("numbers", "words", "allocated", "copied")],
    *[(name, lambda: (matrix(torch.int64),)) for name in ("numbers", "words", "copied")],
    *[(name, lambda: (matrix().t(),)) for name in ("numbers", "words", "allocated", "viewed", "copied")],
    ("words", lambda: (matrix(torch.bfloat16),)),
    ("words", lambda: (matrix(torch.bool),)),
    ("numbers", lambda: (torch.nn.Parameter(matrix()),)),
    ("numbers", lambda: (torch.zeros(2, 0, 3),)),
    ("numbers", lambda: (torch.tensor(1.0),)),
    ("viewed", lambda: (torch.zeros(1, 2),)),
    *[
        ("dispatched", lambda dtype=dtype: (matrix(dtype),))
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.bool)
    ],
    *[
        ("dispatched_all", lambda dtype=dtype: (matrix(dtype),))
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int64, torch.float32, torch.float16)
    ],
    ("dispatched_floating", lambda: (matrix().t(),)),
    ("dispatched_floating", lambda: (torch.zeros(3),)),
    ("dispatched_floating", lambda: (matrix(torch.float16),)),
    ("typed_pointers", lambda: (matrix(),)),
    ("typed_pointers", lambda: (matrix(torch.float64),)),
    ("checked", lambda: (torch.zeros(2, 2), 2)),
    ("checked", lambda: (torch.zeros(2, 2), 3)),
    ("checked", lambda: (torch.zeros(1, 2), 2)),
    ("checked", lambda: (matrix(), 2)),
    ("optional_bias", lambda: (matrix(), None, None)),
    ("optional_bias", lambda: (matrix(), torch.ones(1), None)),
    ("optional_bias", lambda: (matrix(), None, 2)),
    ("three", lambda: (matrix(), 3, 2)),
    ("three", lambda: (matrix(), 2**31, 2.0)),
    ("three", lambda: (matrix(), 1.0, 2.0)),
    ("three", lambda: (matrix(), torch.tensor(3), torch.tensor(2.5))),
    ("three", lambda: (matrix(),)),
    ("three", lambda: (None, 1, 1.0)),
    ("two", lambda: (True, "text")),
    ("two", lambda: (0, b"bytes")),
    ("two", lambda: (True, 3)),
    ("arguments", lambda: ([1, 2], (3,), [0.5, 1], [matrix()], 7, -3)),
    ("arguments", lambda: (torch.Size([4]), [], [], (), 0, 127)),
    ("arguments", lambda: ([1], [1], [1], [1], 1, 1)),
    ("arguments", lambda: ([1], [1], [1], [], -1, 1)),
    ("arguments", lambda: ([1], [1], [1], [], 1, 128)),
    ("undefined", lambda: (True,)),
    ("undefined", lambda: (False,)),
    ("of_type", lambda: (torch.float16,)),
    ("of_type", lambda: (3,)),
    ("nothing", lambda: (matrix(),)),
    ("item", lambda: (torch.tensor(2.0),)),
    ("item", lambda: (matrix(),)),
    *[("throws", lambda which=which: (which,)) for which in range(8)],
]


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[f"{name}{at}" for at, (name, _) in enumerate(CALLS)])
def test_every_answer_is_that_of_pytorchs_headers(
    both: tuple[ModuleType, ModuleType], name: str, arguments: Callable[[], tuple[Any, ...]]
) -> None:
    light, heavy = both
    assert outcome(getattr(light, name), arguments) == outcome(getattr(heavy, name), arguments)
