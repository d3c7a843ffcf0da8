"""Machine instructions of one function, as a disassembler printed them, and its loops."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_TENSOR = re.compile(r"HMMA|HGMMA|IMMA|IGMMA|DMMA|QGMMA|UTCHMMA")
_SCALAR = re.compile(
    r"FFMA|FADD|FMUL|HFMA2|HADD2|HMUL2|DFMA|MUFU"  # of GPUs
    r"|vfn?m(add|sub)|v?(mul|add)[ps][sd]$"  # of x86-64
)
_TENSOR_WEIGHT = 32
_WIDTHS = {"zmm": 16, "ymm": 8, "xmm": 4}
"""Numbers of 32 bits in a vector register."""


class Instruction(NamedTuple):
    """One instruction."""

    address: int
    mnemonic: str
    text: str
    """The whole of it, without its address and encoding."""
    jumps_to: int | None
    """The address that it may jump to, within the function."""


def hottest_loop(code: Sequence[Instruction]) -> Sequence[Instruction] | None:
    """Of the innermost loops the one with the most arithmetic, for there the time usually goes; None without such.

    A loop is what lies between a jump backwards and its target; one that holds another is not innermost.
    """
    index = {each.address: number for number, each in enumerate(code)}
    spans = {
        (index[each.jumps_to], number + 1)
        for number, each in enumerate(code)
        # A jump to itself is how a function is padded.
        if each.jumps_to is not None and each.jumps_to < each.address and each.jumps_to in index
    }
    innermost = [span for span in spans if not any(_holds(span, other) for other in spans)]
    loops = [loop for loop in (code[start:end] for start, end in sorted(innermost)) if _arithmetic(loop)]
    return max(loops, key=_arithmetic, default=None)


def _holds(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer != inner and outer[0] <= inner[0] and inner[1] <= outer[1]


def densest(code: Sequence[Instruction], count: int) -> Sequence[Instruction]:
    """The `count` instructions in a row that hold the most arithmetic; the first such, all where there are no more."""
    starts = range(max(1, len(code) - count + 1))
    return code[(start := max(starts, key=lambda at: _arithmetic(code[at : at + count]))) : start + count]


def _arithmetic(code: Sequence[Instruction]) -> int:
    return sum(map(_weight, code))


def _weight(instruction: Instruction) -> int:
    """About how many operations of fp32 it does."""
    if _TENSOR.match(instruction.mnemonic):
        return _TENSOR_WEIGHT
    if not _SCALAR.match(instruction.mnemonic):
        return 0
    # `vfmadd213ss` works on one number, `vfmadd213ps` on a whole register.
    if instruction.mnemonic[-2:] in ("ss", "sd"):
        return 1
    return next((width for name, width in _WIDTHS.items() if name in instruction.text), 1)
