"""What was typed after `kernelwright tool`, as tool calls."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.resuming import compiled
from agent.toolset import tool_names
from runs.events import Event, ToolCall
from tasks.errors import UsageError
from tools.candidate import Candidate

COMPILE = "compile_kernel"
GUIDE = "read_guide"
DISASSEMBLE = "disassemble"


@dataclass(frozen=True)
class Typed:
    """The words of one command."""

    tool: str
    what: str | None
    """The path of a candidate's file; of `read_guide`, the name of a guide."""
    candidate: str | None = None
    """The id of a candidate compiled before, or its beginning."""
    kernel: str | None = None
    """A part of a kernel's name, for `disassemble`."""

    def require_sense(self) -> None:
        """Raise UsageError where the words do not go together."""
        known = tool_names()
        if self.tool not in known:
            raise UsageError(f"There is no tool {self.tool!r}; the tools are {', '.join(known)}.")
        if self.kernel is not None and self.tool != DISASSEMBLE:
            raise UsageError(f"--kernel is for {DISASSEMBLE} only.")
        if self.candidate is not None and (self.what is not None or self.tool in (COMPILE, GUIDE)):
            raise UsageError(f"{self.tool} takes a file or --candidate, not both, and {COMPILE} and {GUIDE} take none.")
        if self.tool == COMPILE and self.what is None:
            raise UsageError(f"{COMPILE} needs the path of a candidate's file.")

    def calls(self, history: Sequence[Event]) -> tuple[ToolCall, ...]:
        """The calls that are meant: where a file is new to the run, it is compiled first.

        Args:
            history: the run's events so far.

        Raises:
            UsageError: the file cannot be read.
        """
        if self.tool == GUIDE:
            return (_call(GUIDE, {"name": self.what}),)
        wanted = {"candidate": self.candidate, "kernel": self.kernel}
        if self.what is None:
            return (_call(self.tool, wanted),)
        candidate = Candidate(_text(Path(self.what)))
        compiling = _call(COMPILE, {"kernel_code": candidate.text})
        if self.tool == COMPILE:
            return (compiling,)
        call = _call(self.tool, {**wanted, "candidate": candidate.id})
        return (call,) if candidate.id in compiled(history) else (compiling, call)


def _call(name: str, arguments: dict[str, str | None]) -> ToolCall:
    given = {key: value for key, value in arguments.items() if value is not None}
    return ToolCall(id="call", name=name, arguments=json.dumps(given))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The candidate {path} cannot be read: {error}. Give the path of a Python file.") from error
