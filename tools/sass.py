"""Reads what cuobjdump prints: functions and SASS instructions.

The form is that of the CUDA Binary Utilities manual, "cuobjdump", seen with release 13.1.
"""

import re

from tools.instructions import Instruction

_FUNCTION = re.compile(r"^\s*Function (?P<name>[^\s:]+):$", re.MULTILINE)
_ARCHITECTURE = re.compile(r"^\s*code for (?P<name>sm_\w+)\n\s+Function :", re.MULTILINE)
_INSTRUCTION = re.compile(
    r"^\s+/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>(?:@!?U?P\w+ +)?(?P<mnemonic>[A-Z][\w.]*)[^;]*);", re.MULTILINE
)
_JUMP = re.compile(r"^BRA.* 0x(?P<target>[0-9a-f]+)\s*$")
_MEMORY = (
    *("LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST", "LDGSTS", "LDSM", "STSM"),
    *("RED", "ATOM", "ATOMS", "ATOMG"),
)
_WIDTHS = ("U8", "S8", "U16", "S16", "64", "128")


def function_names(usage: str) -> list[str]:
    """The mangled names in a listing of resource usage, each once, in its order."""
    return list(dict.fromkeys(_FUNCTION.findall(usage)))


def architecture(listing: str) -> str:
    """The architecture of the code in a listing of instructions, such as `sm_90a`; empty where there is none."""
    found = _ARCHITECTURE.search(listing)
    return found["name"] if found else ""


def parse(listing: str) -> list[Instruction]:
    """The instructions in a listing of one function. The padding after its last jump is left out: a jump to itself, and
    NOPs."""
    code = []
    for found in _INSTRUCTION.finditer(listing):
        text = " ".join(found["text"].split())
        jump = _JUMP.match(text[text.index(found["mnemonic"]) :])
        target = int(jump["target"], 16) if jump else None
        address = int(found["address"], 16)
        if target != address and found["mnemonic"] != "NOP":
            code.append(Instruction(address, found["mnemonic"], text, target))
    return code


def kind(instruction: Instruction) -> str:
    """What an instruction counts as: its operation, and for accesses to memory their width if it is not 32 bits."""
    operation, *modifiers = instruction.mnemonic.split(".")
    if operation not in _MEMORY:
        return operation
    return ".".join([operation, *(name for name in modifiers if name in _WIDTHS)][:2])
