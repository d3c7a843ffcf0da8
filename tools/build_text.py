"""What a build hands to the compilers, and what it makes of their errors: texts from texts, nothing is run here."""

import json
import re

from tools.candidate import Candidate
from tools.inline_request import InlineRequest
from tools.results import Diagnostic

CANDIDATE_FILE = "candidate.py"
_LONGEST_SIGNATURE = 2000
"""Characters; without a bound, a source of many such words would take hours to search."""


def module_name(key: str) -> str:
    """The name under which Python imports the extension of a build."""
    return f"kernelwright_{key[:16]}"


def located(sources: tuple[str, ...], candidate: Candidate, label: str) -> str:
    """The sources, each preceded by a `#line` that points into the candidate's own text where it can be found."""
    parts = []
    for index, text in enumerate(sources):
        line = candidate.first_line_of(text)
        parts.append(f'#line {line} "{CANDIDATE_FILE}"\n' if line else f'#line 1 "{label}[{index}]"\n')
        parts.append(text + "\n")
    return "".join(parts)


def host_source(request: InlineRequest, candidate: Candidate, key: str, *, prelude: str, light: bool) -> str:
    """The C++ sources and, where functions are named, their binding.

    Args:
        request: what `load_inline` was asked for.
        candidate: whose text the sources are looked for in.
        key: of the build.
        prelude: what precedes the sources.
        light: it is compiled against the light headers, whose binding needs no wrapping.
    """
    parts = [prelude, f"#define TORCH_EXTENSION_NAME {module_name(key)}\n"]
    parts.append(located(request.cpp_sources, candidate, "cpp_sources"))
    if request.functions is not None:
        parts.append('#line 1 "binding"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n')
        if light and request.error_handling:
            parts.append("m.handle_errors();\n")
        for name, doc in request.functions.items():
            wrapped = request.error_handling and not light
            callee = f"torch::wrap_pybind_function({name})" if wrapped else f"&{name}"
            parts.append(f"m.def({json.dumps(name)}, {callee}, {json.dumps(doc)});\n")
        parts.append("}\n")
    return "".join(parts)


def advice(request: InlineRequest, errors: list[Diagnostic]) -> str:
    """One sentence on what to do, for the mistakes that compilers explain badly."""
    cuda = "\n".join(request.cuda_sources)
    for name in request.functions or {}:
        if not any(_is_about(error, name) for error in errors):
            continue
        if re.search(rf"__global__[^;{{]{{0,{_LONGEST_SIGNATURE}}}\b{re.escape(name)}\s*\(", cuda):
            return (
                f"functions=[{name!r}] names a __global__ kernel. Python cannot launch a kernel: write a host function "
                f"that takes torch::Tensor arguments and launches {name}<<<grid, block>>>(...), declare that function "
                "in cpp_sources, and name it in functions instead."
            )
        return (
            f"functions=[{name!r}] has no declaration in cpp_sources. load_inline generates bindings only for "
            f"functions declared there: add the prototype of {name} to cpp_sources and define it there or in "
            "cuda_sources."
        )
    count = len(errors)
    return f"the extension {request.name!r} does not compile: {count} error{'s' if count != 1 else ''}."


def _is_about(error: Diagnostic, function: str) -> bool:
    """Whether the binding's reference to a function is what an error is about; compilers also name similar ones."""
    if error.file == "linker":
        return re.search(rf"undefined reference to {re.escape(function)}\b", error.message) is not None
    quoted = re.search(r"'([^']+)'", error.message)
    return error.file == "binding" and quoted is not None and quoted[1] == function.rsplit("::", 1)[-1]
