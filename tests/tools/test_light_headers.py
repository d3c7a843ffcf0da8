"""The light headers answer as PyTorch's own: the same source is built against both, and every answer is compared."""

import importlib.util
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
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
from tools.light_source import certain_errors, lacks_light_headers, light_prelude
from tools.results import Diagnostic
from tools.toolchain import find_toolchain

SOURCE = (Path(__file__).parent / "light" / "interface.cpp").read_text()
FUNCTIONS = (
    *("numbers", "words", "allocated", "viewed", "copied", "dispatched", "dispatched_all", "dispatched_floating"),
    *("typed_pointers", "checked", "optional_bias", "three", "two", "arguments", "undefined", "of_type", "nothing"),
    *("item", "throws", "moved_from", "item_int", "item_float", "item_byte", "type_names", "printed"),
    *("undefined_devices", "array_misuse", "new_without_gradient", "array_of", "text", "warns", "throws_no_exception"),
    "compared",
)
OF_ANY_TYPE = (
    *(torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.complex64),
    *(torch.complex128, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz),
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
    mark = "// heavy\n"
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as beside:
        patch.setattr(compilation, "lacks_light_headers", lambda request: request.cpp_sources[0].endswith(mark))
        building = beside.submit(build, SOURCE + mark, FUNCTIONS)
        light = build(SOURCE, FUNCTIONS)
        heavy = building.result()
    assert light.report.path_taken == "light"
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
        told = str(error).split("\nException raised from", 1)[0].splitlines()[0]
        # What PyTorch's logger puts before it: severity, date, time, file and line.
        answer = (type(error), re.sub(r"^\[F[^\]]*\] ", "", told))
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
    ("compared", lambda: (torch.zeros(1, 2), 2)),
    ("compared", lambda: (torch.zeros(1, 2), 3)),
    ("compared", lambda: (torch.zeros(1, 1, 1), 3)),
    ("compared", lambda: (torch.zeros(2, 2), 2)),
    ("compared", lambda: (torch.zeros(2, 1), 2)),
    ("compared", lambda: (torch.zeros(0), 1)),
    ("compared", lambda: (torch.zeros(1, 2, 1, 1), 4)),
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
    ("moved_from", tuple),
    *[
        (name, lambda value=value: (torch.tensor(value, dtype=torch.float64),))
        for name in ("item_int", "item_float", "item_byte")
        for value in (3.0, -1.0, 300.0, 2.0**40, 1e300, float("inf"))
    ],
    *[("item_int", lambda value=value: (torch.tensor(value),)) for value in (2**31 - 1, 2**31, -(2**40), True)],
    *[("type_names", lambda dtype=dtype: (torch.zeros(2, dtype=dtype),)) for dtype in OF_ANY_TYPE],
    ("printed", lambda: (matrix(),)),
    ("undefined_devices", tuple),
    *[("array_misuse", lambda given=given, at=at: (given, at)) for given in ([], [1, 2, 3]) for at in range(4)],
    ("new_without_gradient", lambda: (matrix(),)),
    *[
        ("array_of", lambda given=given: (given,))
        for given in (
            [1, 2],
            (True,),
            [torch.tensor(3)],
            [],
            range(3),
            b"12",
            torch.tensor([1]),
            [numpy.int64(3)],
            [1.0],
        )
    ],
    *[("text", lambda given=given: (given,)) for given in ("text", b"bytes", bytearray(b"more"), 3, None)],
    ("throws_no_exception", lambda: (True,)),
    ("throws_no_exception", lambda: (False,)),
]


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[f"{name}{at}" for at, (name, _) in enumerate(CALLS)])
def test_every_answer_is_that_of_pytorchs_headers(
    both: tuple[ModuleType, ModuleType], name: str, arguments: Callable[[], tuple[Any, ...]]
) -> None:
    light, heavy = both
    assert outcome(getattr(light, name), arguments) == outcome(getattr(heavy, name), arguments)


def test_a_warning_reaches_python_as_with_pytorchs_headers(both: tuple[ModuleType, ModuleType]) -> None:
    for module in both:
        with pytest.warns(UserWarning, match="^a warning 3"):
            module.warns()


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


def test_a_pointer_takes_a_tensor_where_folders_to_include_from_are_named(tmp_path: Path) -> None:
    """With PyTorch's headers it would not, so that naming a folder must not decide."""
    built = build(POINTERS, ("scale",), extra_include_paths=(str(tmp_path),))
    x, y = matrix(), torch.zeros(2, 3)
    loaded(built).scale(x, y, x.numel(), 3)
    assert torch.equal(y, 3 * x)


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


def test_exceptions_of_a_module_of_ones_own_are_pybind11s() -> None:
    """Not wrapped by PyTorch, so that the standard library's exceptions have types of their own in Python."""
    kinds = {
        "out_of_range": IndexError,
        "invalid_argument": ValueError,
        "domain_error": ValueError,
        "length_error": ValueError,
        "range_error": ValueError,
        "overflow_error": OverflowError,
        "runtime_error": RuntimeError,
    }
    functions = "".join(f'm.def("{kind}", []() {{ throw std::{kind}("told"); }});\n' for kind in kinds)
    text = f"#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{functions}}}\n"
    built = build(text, None)
    assert built.report.path_taken == "light"
    module = loaded(built)
    for kind, error in kinds.items():
        with pytest.raises(error, match=r"^told$") as caught:
            getattr(module, kind)()
        assert caught.type is error


@pytest.mark.parametrize(
    "text",
    [
        "#ifdef TORCH_VERSION_MAJOR\nint64_t f() { return 1; }\n#else\nint64_t f() { return 2; }\n#endif\n",
        "#if !defined(TORCH_INTERNAL_ASSERT)\n#define TORCH_INTERNAL_ASSERT(x)\n#endif\nint64_t f() { return 1; }\n",
        "#if __has_include(<ATen/Parallel.h>)\nint64_t f() { return 1; }\n#endif\n",
        'PYBIND11_MODULE(x, m) {\n  m.def("f", &with_int);\n  m . def ( "f", &with_float);\n}\n',
    ],
)
def test_what_would_silently_be_another_program_is_left_to_pytorchs_headers(text: str) -> None:
    assert lacks_light_headers(InlineRequest(name="light", cpp_sources=(text,), functions=None))


@pytest.mark.parametrize(
    "text",
    [
        "using namespace torch;\nTensor f(Tensor x) { return x.clone(); }\n",
        '#ifndef MY_GUARD\n#define MY_GUARD\n#endif\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }\n',
        "#ifdef TORCH_CHECK\nint64_t f() { return 1; }\n#endif\n",
    ],
)
def test_what_the_light_headers_answer_alike_is_compiled_against_them(text: str) -> None:
    assert not lacks_light_headers(InlineRequest(name="light", cpp_sources=(text,), functions=None))


@pytest.mark.parametrize(
    "parameter", ["torch::Tensor*", "const torch::Tensor*", "std::string*", "std::vector<int64_t>*", "char"]
)
def test_what_pybind11_takes_as_an_object_is_left_to_it(parameter: str, tmp_path: Path) -> None:
    """A tensor's data is no tensor: reading it as one crashed."""
    text = f'void f({parameter} x) {{}}\nPYBIND11_MODULE(light, m) {{ m.def("f", &f); }}\n'
    request = InlineRequest(name="light", cpp_sources=(text,), functions=None)
    errors = compiler_errors("#include <torch/extension.h>\n" + text, tmp_path)
    assert errors
    assert certain_errors(errors, request, text, find_toolchain()) == ()


@pytest.mark.parametrize(
    "text",
    [
        "using namespace at::cuda;\nauto s() { return getCurrentCUDAStream(); }\n",
        "auto s() { return c10::cuda::device_count(); }\n",
    ],
)
def test_streams_are_there_however_they_are_named(text: str) -> None:
    assert "#include <kernelwright/cuda.h>" in light_prelude([text], device=True, binds=False, cuda=True)


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
        # Brought along by PyTorch's headers, and named nowhere in them.
        "int64_t f(int64_t x) { return omp_get_max_threads() + omp_get_num_procs(); }\n",
        "float f(float x) { float y[4]; _mm_store_ps(y, _mm_set1_ps(x)); return y[0]; }\n",
        "void f() { _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON); }\n",
        # A macro of PyTorch's that declares a name, and a class that is found without `torch::`.
        "void f(int n) {\n  CUDA_KERNEL_LOOP(xyzzy_index, n) { n += xyzzy_index; }\n}\n",
        "using namespace torch;\nstruct Mine : Module {\n  int a;\n};\n",
        # Would point into a tensor that is gone.
        "float f(at::Tensor x) { return x.clone().accessor<float, 1>()[0]; }\n",
    ],
)
def test_an_error_that_a_header_could_cure_is_never_certain(text: str, tmp_path: Path) -> None:
    request = InlineRequest(name="light", cpp_sources=(text,), functions={"f": "f"})
    errors = compiler_errors(text, tmp_path)
    assert errors
    assert certain_errors(errors, request, text, find_toolchain()) == ()
