"""Reads what objdump (binutils) prints of x86-64 code: functions and instructions in Intel's syntax."""

import re

from tools.demangling import demangled
from tools.instructions import Instruction
from tools.library_compute import bare

_SYMBOL = re.compile(
    r"^[0-9a-f]{16} (?P<flags>.{7}) \.text\s+(?P<size>[0-9a-f]+)\s+(?:\.hidden )?(?P<name>\S+)$", re.MULTILINE
)
_INSTRUCTION = re.compile(r"^\s+(?P<address>[0-9a-f]+):\t(?P<text>(?P<mnemonic>[a-z][\w.]*)[^\n]*)$", re.MULTILINE)
_JUMP = re.compile(r"^j\w+\s+(?P<target>[0-9a-f]+)\b")
_VECTOR = ("zmm", "ymm", "xmm")
# By its name with namespaces: what headers bring with them, the light ones too, and what starts a library.
_NOT_THE_CANDIDATES = re.compile(
    r"(pybind11|std|__gnu_cxx|at|c10|torch)::|pybind11_|kernelwright_|python_error|THP|Py[A-Z_]|PyInit_|_GLOBAL__sub_I"
    r"|__do_global|_start$|frame_dummy|(de)?register_tm_clones|__static_initialization|~|operator"
)


def function_names(symbols: str) -> list[str]:
    """The mangled names of a library's own functions in a table of symbols: what OpenMP's threads run first, for there
    the loops are, then the longest code."""
    sizes = {found["name"]: int(found["size"], 16) for found in _SYMBOL.finditer(symbols) if "F" in found["flags"]}
    own = (name for name in sizes if _is_the_candidates(demangled(name)))
    return sorted(own, key=lambda name: ("._omp_fn" not in name, -sizes[name]))


def _is_the_candidates(name: str) -> bool:
    return _NOT_THE_CANDIDATES.match(bare(name)) is None and "Kernelwright" not in name


def parse(listing: str) -> list[Instruction]:
    """The instructions in a listing of one function."""
    code = []
    for found in _INSTRUCTION.finditer(listing):
        text = " ".join(found["text"].split("#", 1)[0].split())
        jump = _JUMP.match(text)
        code.append(
            Instruction(int(found["address"], 16), found["mnemonic"], text, int(jump["target"], 16) if jump else None)
        )
    return code


def kind(instruction: Instruction) -> str:
    """What an instruction counts as: its mnemonic, and the widest vector register that it names."""
    widest = next((name for name in _VECTOR if name in instruction.text), None)
    return instruction.mnemonic if widest is None else f"{instruction.mnemonic} {widest}"
