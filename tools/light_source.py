"""What a build against the light headers hands to the compilers, and which errors would be the same without them."""

import itertools
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from tools.inline_request import InlineRequest
from tools.process import scrubbed_environment
from tools.results import Diagnostic
from tools.toolchain import Toolchain

_NEEDS_TORCH = re.compile(r"torch|\bat::|\bc10::|\bATen\b|TORCH_|AT_DISPATCH|\bAT_|C10_|py::|pybind|PYBIND11")
_BEYOND = re.compile(
    r"\bTORCH_LIBRARY|\btorch::(?:nn|autograd|jit|indexing|Library)\b|(?<!using )\bnamespace (?:at|c10|torch)\b"
)
"""What the light headers surely lack, so that trying them would only cost a second."""
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if.*", re.MULTILINE)
_DEFINES_FUNCTION = re.compile(r"\.\s*def\s*\(\s*\"(\w+)\"")

_ALWAYS = (
    *("cassert", "cfloat", "climits", "cmath", "cstdint", "cstdio", "cstdlib", "cstring", "limits"),
    *("tuple", "utility", "vector"),
)
_ALGORITHMS = (
    r"min|max|minmax|\w+_element|clamp|\w*sort|fill\w*|copy\w*|find\w*|all_of|any_of|none_of|count\w*|equal|generate\w*"
    r"|transform|reverse|rotate|\w+_bound|unique|for_each\w*|swap_ranges|replace\w*|remove\w*|shuffle|partition|merge"
)
_WHERE_MENTIONED = {
    "algorithm": rf"\bstd::(?:{_ALGORITHMS})\b",
    "array": r"\barray\b",
    "atomic": r"\batomic",
    "chrono": r"\bchrono\b",
    "complex": r"\bcomplex\b",
    "deque": r"\bdeque\b",
    "functional": r"\bstd::(?:function|plus|less|greater|multiplies|bind|hash|ref)\b",
    "iomanip": r"\bset(?:w|precision|fill)\b",
    "iostream": r"\b(?:cout|cerr|clog|endl)\b",
    "map": r"\bmap\b",
    "memory": r"\b(?:unique_ptr|shared_ptr|make_shared|make_unique|weak_ptr)\b",
    "mutex": r"\b(?:mutex|lock_guard|unique_lock|once_flag|call_once|scoped_lock)\b",
    "numeric": r"\b(?:accumulate|iota|inner_product|partial_sum|gcd|lcm|reduce)\b",
    "optional": r"\boptional\b",
    "queue": r"\b(?:priority_)?queue\b",
    "random": r"\b(?:mt19937|random_device|\w+_distribution)\b",
    "set": r"\bset\b",
    "sstream": r"\b[io]?stringstream\b",
    "stdexcept": r"\b(?:runtime_error|logic_error|invalid_argument|out_of_range|domain_error|length_error)\b",
    "string": r"\bstd::(?:string|to_string|sto\w+)\b|using namespace std",
    "thread": r"\bthread\b",
    "type_traits": r"\b(?:is_\w+|enable_if|conditional|decay|remove_\w+)(?:_t|_v)?\s*<",
    "unordered_map": r"\bunordered_map\b",
    "unordered_set": r"\bunordered_set\b",
}
"""Standard headers that PyTorch's own bring along; each costs time, so each only where its names are seen."""

_LIGHT_PARTS = {
    "kernelwright/half.h": r"\bk?(?:Half|BFloat16|Float16)\b|AT_DISPATCH_\w*(?:HALF|AND|REDUCED|CASE|SWITCH)",
    "kernelwright/dispatch.h": r"\bAT_DISPATCH_|\bacc_type\b|\bopmath_type\b|\bAccumulateType\b|\bOpMathType\b",
    "kernelwright/accessor.h": r"ccessor|PtrTraits",
    "kernelwright/cuda.h": r"\bcuda::|::cuda\b|CUDAStream|C10_CUDA|AT_CUDA|DeviceGuard|CUDAGuard",
}
_CUDA_HEADERS = {
    "cuda_fp16.h": r"half|fp16|Half",
    "cuda_bf16.h": r"bfloat|bf16|BFloat",
    "cuda_runtime.h": r"\bcuda|\bdim3\b|\bfloat[234]\b",
    "cuda.h": r"\bcu[A-Z]|\bCU",
}


def lacks_light_headers(request: InlineRequest) -> bool:
    """Whether a request is known beforehand not to compile against the light headers."""
    sources = (*request.cpp_sources, *request.cuda_sources)
    # Where PyTorch is named, what lies in those folders may want its own headers, or be them.
    if not request.is_python_module or (request.extra_include_paths and needs_torch(sources)):
        return True
    text = "\n".join(sources)
    return _BEYOND.search(text) is not None or _asks_for_torch(text) or _overloads(text)


def _asks_for_torch(text: str) -> bool:
    """Whether what is compiled depends on which of PyTorch's headers and macros there are."""
    conditions = "\n".join(_CONDITION.findall(text))
    return "__has_include" in conditions or any(
        name not in _light_macros() for name in _TORCH_MACRO.findall(conditions)
    )


def _overloads(text: str) -> bool:
    """Whether two functions are bound to one name, which only pybind11 can tell apart by their arguments."""
    names = _DEFINES_FUNCTION.findall(text)
    return len(set(names)) < len(names)


def needs_torch(sources: Iterable[str]) -> bool:
    """Whether any of the sources names something of PyTorch."""
    return any(_NEEDS_TORCH.search(text) for text in sources)


def light_prelude(sources: Sequence[str], *, device: bool, binds: bool, cuda: bool) -> str:
    """The includes that stand where `load_inline` includes PyTorch's headers.

    Args:
        sources: the texts that follow.
        device: they are compiled by nvcc.
        binds: a binding for Python is among them.
        cuda: the extension is built with CUDA.
    """
    text = "\n".join(sources)
    headers = []
    if binds or needs_torch(sources):
        parts = [name for name, mention in _LIGHT_PARTS.items() if re.search(mention, text)]
        # Half comes first: the others take over the macros that its header defines.
        parts = [name for name in parts if cuda or name != "kernelwright/cuda.h"]
        headers += [*parts, "kernelwright/tensor.h", *(["kernelwright/binding.h"] if binds else [])]
    headers += _ALWAYS
    headers += [name for name, mention in _WHERE_MENTIONED.items() if re.search(mention, text)]
    if device:
        headers += ["cuda.h", "cuda_runtime.h"]
    if device or cuda:
        headers += [name for name, mention in _CUDA_HEADERS.items() if re.search(mention, text)]
    return "".join(f"#include <{name}>\n" for name in dict.fromkeys(headers))


_NAMED = re.compile(
    r"identifier \"(?P<nvcc>\w+)\" is undefined"
    r"|'(?P<gcc>\w+)' (?:was not declared in this scope|does not name a type|has not been declared)"
)
_SYNTAX = re.compile(r"expected |unrecognized token|missing closing quote|unterminated |stray ")
_TORCH_MACRO = re.compile(r"\b(?:TORCH|AT|C10|CAFFE2|PYBIND11|THO|STD_TORCH|CUDA_KERNEL|REGISTER)_\w+")
_MACRO_CALL = re.compile(r"\b([A-Z][A-Z0-9_]+)[ \t]*\(")
_OPENED = re.compile(r"\busing[ \t]+namespace[ \t]+(?:at|c10|torch)\b")
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_NO_FILE = re.compile(r"cannot open source file \"(?P<nvcc>[^\"]+)\"|^(?P<gcc>\S+): No such file or directory")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_LISTING_TIMEOUT_S = 60.0
_HEADER_SUFFIXES = (".h", ".hpp", ".cuh", ".inc")


def certain_errors(
    errors: Iterable[Diagnostic], request: InlineRequest, text: str, toolchain: Toolchain
) -> tuple[Diagnostic, ...]:
    """The errors that PyTorch's own headers could not cure: names that occur nowhere in them, and broken syntax where
    nothing of theirs is near.

    One that they could cure may be the cause of all that follow it, so nothing is certain from there on.

    Args:
        errors: of one compiler, in its order.
        request: what was compiled.
        text: the candidate's, whose lines the errors name.
        toolchain: whose headers are asked.
    """
    root = toolchain.torch_root / "include"
    lines = text.splitlines()
    sources = "\n".join((*request.cpp_sources, *request.cuda_sources))

    def is_certain(error: Diagnostic) -> bool:
        if found := _NAMED.search(error.message):
            name = found["nvcc"] or found["gcc"]
            # A macro may also declare the name, as CUDA_KERNEL_LOOP does.
            return not _may_name(name, toolchain) and not _may_use_macros(sources, toolchain)
        if found := _NO_FILE.search(error.message):
            name = found["nvcc"] or found["gcc"]
            return not (root / name).exists() and not (root / "torch" / "csrc" / "api" / "include" / name).exists()
        if error.line is None or not _SYNTAX.match(error.message) or _OPENED.search(sources):
            return False
        if _may_use_macros(sources, toolchain):
            return False
        # What is missing at the end of a line is missed in the next.
        return not _NEEDS_TORCH.search("\n".join(lines[max(0, error.line - 2) : error.line]))

    return tuple(itertools.takewhile(is_certain, errors))


def _may_use_macros(text: str, toolchain: Toolchain) -> bool:
    """Whether a text may use macros of PyTorch's headers that neither it nor the light headers define."""
    named = {*_TORCH_MACRO.findall(text), *(name for name in _MACRO_CALL.findall(text) if _may_name(name, toolchain))}
    return bool(named - {*_DEFINED.findall(text)} - _light_macros())


def _may_name(name: str, toolchain: Toolchain) -> bool:
    words = _words(toolchain)
    return words is None or name.encode() in words


@lru_cache(maxsize=1)
def _light_macros() -> frozenset[str]:
    """The macros that are the same in a build against the light headers."""
    headers = (Path(__file__).parent / "light" / "include").rglob("*.h")
    by_the_build = ("TORCH_EXTENSION_NAME", "TORCH_API_INCLUDE_EXTENSION_H")
    return frozenset((*by_the_build, *(name for path in headers for name in _DEFINED.findall(path.read_text()))))


@lru_cache(maxsize=1)
def _words(toolchain: Toolchain) -> frozenset[bytes] | None:
    """Every word in PyTorch's headers and in those of others that they bring along, such as OpenMP's and the
    intrinsics'; some hundred thousand, found in a few seconds. None where the compiler does not list them."""
    brought = _brought_along(toolchain)
    if brought is None:
        return None
    headers = (path for path in (toolchain.torch_root / "include").rglob("*") if path.suffix in _HEADER_SUFFIXES)
    words: set[bytes] = set()
    for path in {*headers, *brought}:
        if path.is_file():
            words.update(_WORD.findall(path.read_bytes()))
    return frozenset(words)


def _brought_along(toolchain: Toolchain) -> list[Path] | None:
    """Every file that PyTorch's headers include, as the host compiler finds them."""
    headers = ["torch/extension.h", *([] if toolchain.cuda_home is None else ["ATen/cuda/CUDAContext.h"])]
    argv = [toolchain.host_compiler, toolchain.host_standard, *toolchain.host_includes, *toolchain.cuda_includes]
    # With OpenMP, and past headers that are missing: that can only add words.
    argv += ["-fopenmp", "-M", "-MG", *(part for header in headers for part in ("-include", header))]
    argv += ["-x", "c++", os.devnull]
    environment = scrubbed_environment()
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_LISTING_TIMEOUT_S, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else [Path(name) for name in done.stdout.replace("\\\n", " ").split()[1:]]
