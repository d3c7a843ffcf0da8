"""The light headers answer as PyTorch's own: the same source is built against both, and every answer is compared."""

import importlib.util
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tools import compilation
from tools.build import Builder, BuiltExtension
from tools.build_text import CANDIDATE_FILE
from tools.candidate import Candidate
from tools.compilation import BuildError
from tools.diagnostics import parse_diagnostics
from tools.inline_request import InlineRequest
from tools.light_kit import light_kit
from tools.light_source import certain_errors, light_prelude
from tools.results import Diagnostic
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


POINTERS = """
void scale(const float* x, float* y, int64_t count, double factor) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * static_cast<float>(factor);
}
int64_t is_null(const double* x) { return x == nullptr; }
int64_t first(const void* x) { return reinterpret_cast<int64_t>(x); }
"""


@pytest.fixture(scope="module")
def pointers() -> ModuleType:
    return loaded(build(POINTERS, ("scale", "is_null", "first")))


def test_a_pointer_takes_a_tensor(pointers: ModuleType) -> None:
    x, y = matrix(), torch.zeros(2, 3)
    pointers.scale(x, y, x.numel(), 3)
    assert torch.equal(y, 3 * x)
    assert pointers.first(x) == x.data_ptr()
    assert pointers.is_null(None) == 1


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (matrix(torch.float64), TypeError, "a pointer to Float was given a tensor of Double"),
        (matrix().t(), ValueError, r"not contiguous, of the sizes \[3, 2\] and strides \[1, 3\]; call .contiguous"),
        (1.0, TypeError, r"scale\(\): incompatible function arguments"),
    ],
)
def test_a_tensor_that_a_pointer_cannot_stand_for_is_refused(
    pointers: ModuleType, x: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pointers.scale(x, torch.zeros(2, 3), 6, 1.0)


OWN_MODULE = """
#include <torch/extension.h>
int64_t sum(int64_t a, int64_t b) { return a + b; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "an own module";
  m.def("sum", &sum, "the sum", py::arg("a"), py::arg("b") = 5);
  m.def("twice", [](const torch::Tensor& x, bool really) { return really ? x.clone() : x; }, py::arg("x"),
        py::arg("really") = true);
}
"""


def test_a_module_of_the_candidates_own() -> None:
    built = build(OWN_MODULE, None)
    assert built.report.path_taken == "light"
    module = loaded(built)
    assert (module.__doc__, module.sum.__doc__) == ("an own module", "the sum")
    assert (module.sum(1), module.sum(1, 2), module.sum(b=3, a=4)) == (6, 3, 7)
    x = matrix()
    assert module.twice(x).data_ptr() != x.data_ptr()
    assert module.twice(really=False, x=x).data_ptr() == x.data_ptr()
    for arguments, keywords in (((), {"b": 1}), ((1,), {"a": 1}), ((1,), {"c": 1}), ((1, 2, 3), {})):
        with pytest.raises(TypeError, match=r"sum\(\): incompatible .*\n +1\. \(a: int, b: int\)"):
            module.sum(*arguments, **keywords)


def test_tensors_are_counted_like_pytorchs(both: tuple[ModuleType, ModuleType]) -> None:
    """A reference too many leaks memory, one too few crashes: the same tensor goes in and out many times."""
    light, _ = both
    x = matrix()
    for _ in range(1000):
        light.optional_bias(x, x, None)
        light.copied(x)
    assert sys.getrefcount(x) == sys.getrefcount(matrix())
    freed = weakref.ref(x)
    del x
    assert freed() is None


def test_what_the_light_headers_lack_is_built_with_pytorchs() -> None:
    text = "torch::Tensor doubled(torch::Tensor x) { return x + x; }\n"
    built = build(text, ("doubled",))
    assert built.report.path_taken != "light"
    assert torch.equal(loaded(built).doubled(matrix()), 2 * matrix())


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("int64_t f(int64_t x) { return xyzzy_count + x; }\n", "'xyzzy_count' was not declared", 1),
        ("int64_t f(int64_t x) {\n  int64_t y = x\n  return y;\n}\n", "expected ',' or ';' before 'return'", 3),
        ("#include <xyzzy/none.h>\nint64_t f(int64_t x) { return x; }\n", "xyzzy/none.h: No such file", 1),
    ],
)
def test_an_error_that_no_header_could_cure_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str, line: int
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("PyTorch's headers were tried")

    monkeypatch.setattr(compilation.Compilation, "_compile_heavy", refuse)
    with pytest.raises(BuildError) as caught:
        build(text, ("f",))
    (error,) = caught.value.diagnostics
    assert message in error.message
    assert error.line == line


def compiler_errors(text: str, folder: Path) -> list[Diagnostic]:
    """What the compiler itself says of a candidate's text against the light headers."""
    chain = find_toolchain()
    kit = light_kit(chain)
    assert kit is not None
    prelude = light_prelude([text], device=False, binds=True, cuda=False)
    (folder / "main.cpp").write_text(f'{prelude}#line 1 "{CANDIDATE_FILE}"\n{text}')
    argv = [chain.host_compiler, chain.host_standard, *kit.includes, *chain.python_includes]
    done = subprocess.run(
        [*argv, "-fsyntax-only", "main.cpp"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C"},
    )
    return [found for found in parse_diagnostics(done.stderr, CANDIDATE_FILE) if found.severity == "error"]


@pytest.mark.parametrize(
    "text",
    [
        # Broken only as long as a template of PyTorch is missing.
        "float f(at::Tensor x) { using T = at::opmath_t<float>; T y = 0; return y; }\n",
        "TORCH_SOMETHING(f)\nint64_t f(int64_t x) { return x }\n",
        "int64_t f(at::Tensor x) { return torch::sum<float>(x); }\n",
        "int64_t f(int64_t x) { return sum + x; }\n",
        "#include <ATen/native/Pool.h>\nint64_t f(int64_t x) { return x }\n",
    ],
)
def test_an_error_that_a_header_could_cure_is_never_certain(text: str, tmp_path: Path) -> None:
    request = InlineRequest(name="light", cpp_sources=(text,), functions={"f": "f"})
    errors = compiler_errors(text, tmp_path)
    assert errors
    assert certain_errors(errors, request, text, find_toolchain()) == ()
