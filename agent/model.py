"""Model clients: what the loop asks of one, and the messages of a conversation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field, JsonValue

from runs.events import ToolCall, Usage
from tasks.errors import ModelServerError
from tasks.record import Record


class ContextOverflowError(ModelServerError):
    """The conversation is longer than the model can take; a shorter one may be tried."""


class RecordingExhaustedError(ModelServerError):
    """The recorded transcript holds no further reply."""


class SystemMessage(Record):
    """What the model is and has to do."""

    role: Literal["system"] = "system"
    text: str


class UserMessage(Record):
    """What the harness says between replies."""

    role: Literal["user"] = "user"
    text: str


class AssistantMessage(Record):
    """An earlier reply of the model, as it is sent back to it."""

    role: Literal["assistant"] = "assistant"
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: dict[str, JsonValue] = Field(default_factory=dict)
    """Under the field names in which the server sent it."""


class ToolMessage(Record):
    """The answer to one tool call."""

    role: Literal["tool"] = "tool"
    call_id: str
    text: str


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage
ToolDefinition = Mapping[str, object]


class ModelReply(Record):
    """One reply of a model."""

    text: str
    reasoning: str = ""
    """The reasoning as text, whatever the server called it."""
    reasoning_fields: dict[str, JsonValue] = Field(default_factory=dict)
    """What has to be passed back to the server, under the names it came with."""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: str = "stop"
    raw: dict[str, JsonValue] = Field(default_factory=dict)
    """The reply as the provider sent it."""


@dataclass(frozen=True)
class Retry:
    """A failed request that will be sent again."""

    attempt: int
    error: str
    wait_s: float


@dataclass(frozen=True)
class Patience:
    """How long a client may try, and whom it tells when it has to try again."""

    seconds: float | None
    """Until the rollout's time is up; None where it has no limit."""
    on_retry: Callable[[Retry], None]


class ModelClient(Protocol):
    """Something that replies to a conversation."""

    @property
    def name(self) -> str:
        """The model's name, for the record."""
        ...

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
        """The next reply. Raises ModelServerError where there will be none."""
        ...
