"""What `disassemble` answers: the machine code of one kernel or function, bounded, and what it consists of."""

from typing import Literal

from pydantic import Field

from tasks.record import Record


class Disassembled(Record):
    """The instructions of one kernel of a candidate, or of one function on the host."""

    status: Literal["disassembled"] = "disassembled"
    candidate: str
    function: str = ""
    """Demangled; empty where none was disassembled."""
    architecture: str = ""
    mix: dict[str, int] = Field(default_factory=dict)
    """Instructions by kind, such as `FFMA`; static counts, a loop's body counts once."""
    instructions: int = 0
    listing: str = ""
    """The first instructions, one a line; those of the innermost loop where it could be told."""
    others: tuple[str, ...] = ()
    """The other functions that could be asked for."""
    note: str = ""
    """What is missing, or was left out, and what to do."""
    seconds: float = 0.0
