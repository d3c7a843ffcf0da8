"""Reads what compilers print: errors and warnings with their lines, and ptxas's report on each kernel."""

import re
import subprocess
from collections.abc import Iterator

from tools.demangling import grows
from tools.kernel_resources import KernelResources
from tools.results import Diagnostic

# g++ and clang: `file:12:5: error: text`; nvcc's front end: `file(12): error: text` or `file(12): error #20: text`
_HOST_STYLE = re.compile(
    r"^(?P<file>[^\s:(][^:(]*):(?P<line>\d+)(?::\d+)?: (?P<kind>fatal error|error|warning): (?P<text>.*)$"
)
_NVCC_STYLE = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?P<kind>catastrophic error|error|warning)(?: #[\w-]+)?: (?P<text>.*)$"
)
_PTXAS_STYLE = re.compile(r"^ptxas (?P<file>[^,]+), line (?P<line>\d+); (?P<kind>error|warning)\s*: (?P<text>.*)$")
_PLAIN_STYLE = re.compile(
    r"^(?:nvcc|ptxas|cc1plus|g\+\+|clang\+\+)\s*:? ?(?P<kind>fatal|error|warning)\s*: (?P<text>.*)$"
)
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:?) [`'\"]?(?P<name>[^`'\"]+)")

_COMPILING = re.compile(r"ptxas info\s*: Compiling entry function '(?P<name>[^']+)'")
_PROPERTIES = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"ptxas info\s*: Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")

EXCERPT_LINES = 6


def parse_diagnostics(output: str, candidate_file: str = "candidate.py") -> tuple[Diagnostic, ...]:
    """The compilers' messages in the order printed, repeated ones once; a message's line is kept only where it lies
    in the candidate's own text."""
    found: dict[Diagnostic, None] = {}
    lines = output.splitlines()
    for at, line in enumerate(lines):
        for style in (_HOST_STYLE, _NVCC_STYLE, _PTXAS_STYLE, _PLAIN_STYLE):
            if match := style.match(line):
                parts = match.groupdict()
                file = (parts.get("file") or "compiler").strip()
                found[
                    Diagnostic(
                        severity="warning" if parts["kind"] == "warning" else "error",
                        message=parts["text"].strip(),
                        line=int(parts["line"]) if parts.get("line") and file == candidate_file else None,
                        file=file.rsplit("/", 1)[-1],
                        excerpt="\n".join(_excerpt(lines, at + 1)),
                    )
                ] = None
                break
        else:
            if undefined := _UNDEFINED.search(line):
                name = undefined["name"].strip()
                found[Diagnostic(severity="error", message=f"undefined reference to {name}", file="linker")] = None
    return tuple(found)


def _excerpt(lines: list[str], start: int) -> Iterator[str]:
    """The indented or numbered lines that follow a message."""
    for line in lines[start : start + EXCERPT_LINES]:
        if not line.startswith((" ", "\t")) or not line.strip():
            return
        yield line.rstrip()


def demangle(names: list[str]) -> list[str]:
    """C++ names as people write them; as they are where no demangler is installed, or in plain they would be too
    long."""
    short = [name for name in names if not grows(name)]
    if not short:
        return names
    try:
        answer = subprocess.run(
            ["c++filt", "--no-params"], input="\n".join(short), capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return names
    demangled = answer.stdout.splitlines()
    if len(demangled) != len(short):
        return names
    plain = dict(zip(short, demangled, strict=True))
    return [plain.get(name, name) for name in names]


def parse_ptxas(output: str) -> tuple[KernelResources, ...]:
    """Registers, shared memory and spills of every kernel in the output of `nvcc -Xptxas -v`."""
    raw: dict[str, dict[str, int]] = {}
    current: dict[str, int] | None = None
    for line in output.splitlines():
        if match := _COMPILING.search(line):
            current = raw.setdefault(match["name"], {})
        elif current is None:
            continue
        elif match := _PROPERTIES.search(line):
            current |= {
                "stack_bytes": int(match["stack"]),
                "spill_store_bytes": int(match["stores"]),
                "spill_load_bytes": int(match["loads"]),
            }
        elif match := _USED.search(line):
            shared = _SHARED.search(line)
            current |= {"registers": int(match["registers"]), "shared_bytes": int(shared[1]) if shared else 0}
            current = None
    complete = {name: figures for name, figures in raw.items() if "registers" in figures}
    names = demangle(list(complete))
    return tuple(KernelResources(name=name, **figures) for name, figures in zip(names, complete.values(), strict=True))
