"""The tools a model may call, with their arguments; bound to one judge."""

from typing import Protocol

from pydantic import Field

from tasks.record import Record
from tools.results import ToolReply


class CompileKernelArguments(Record):
    """Compile a candidate. Returns compiler errors at the lines of your text, or registers, shared memory and spills."""

    kernel_code: str = Field(min_length=1)
    """The whole Python module that defines ModelNew and builds its extension with load_inline."""


class CandidateArguments(Record):
    """Arguments of the tools that work on a compiled candidate."""

    candidate: str | None = None
    """The id (or its first characters) of a candidate compiled before; without it, the one compiled last."""


class Tools(Protocol):
    """What the agent's loop and replay need of a toolbox."""

    def definitions(self) -> list[dict[str, object]]:
        """The tools in the JSON form of Chat Completions `tools`."""
        ...

    def call(self, name: str, arguments: str) -> ToolReply:
        """Carry out one call; `arguments` is the JSON text the model wrote. Never raises for the model's mistakes."""
        ...

    def candidate_text(self, candidate_id: str) -> str:
        """The text of a candidate seen in this toolbox."""
        ...
