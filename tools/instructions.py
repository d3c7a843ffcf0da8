"""Machine instructions of one function, as a disassembler printed them, and its loops."""

import itertools
import math
import re
from collections.abc import Collection, Sequence
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
    sums = _running_sums(code)
    innermost = [(start, end) for start, end in _innermost(spans) if sums[end] > sums[start]]
    best = max(innermost, key=lambda span: sums[span[1]] - sums[span[0]], default=None)
    return None if best is None else code[best[0] : best[1]]


def _innermost(spans: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans that hold no other, in their order."""
    found: list[tuple[int, int]] = []
    # From the back: the first end met so far is that of a span which starts no earlier.
    first_end: float = math.inf
    for start, end in sorted(spans, key=lambda span: (-span[0], span[1])):
        if end < first_end:
            found.append((start, end))
            first_end = end
    return found[::-1]


def densest(code: Sequence[Instruction], count: int) -> Sequence[Instruction]:
    """The `count` instructions in a row that hold the most arithmetic; the first such, all where there are no more."""
    sums = _running_sums(code)
    starts = range(max(1, len(code) - count + 1))
    start = max(starts, key=lambda at: sums[min(at + count, len(code))] - sums[at])
    return code[start : start + count]


def _running_sums(code: Sequence[Instruction]) -> list[int]:
    """The arithmetic before each instruction, and of all."""
    return [0, *itertools.accumulate(map(_weight, code))]


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
