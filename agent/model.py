"""Model clients: what the loop asks of one, and the messages of a conversation.

What a client raises, below `tasks.errors.ModelServerError`:

    ModelServerError                the server failed for good
    ├── ContextOverflowError        the conversation is longer than the model can take
    ├── QuotaError                  the account's money or quota is used up
    ├── KeyRefusedError             the key may not use the model, or there is none
    ├── AddressError                the named model or URL is not there, or speaks another interface
    ├── WaitingStoppedError         the rollout was told to stop while the client waited
    └── RecordingExhaustedError     the recorded transcript holds no further reply
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field, JsonValue

from runs.events import ToolCall, Usage
from tasks.errors import ModelServerError
from tasks.record import Record


class ContextOverflowError(ModelServerError):
    """The conversation is longer than the model can take; a shorter one may be tried."""


class QuotaError(ModelServerError):
    """The account's money or quota is used up; waiting does not help."""


class KeyRefusedError(ModelServerError):
    """The server refuses the key; a person has to set another."""


class AddressError(ModelServerError):
    """The named model or URL is not there, or does not speak the interface; a person has to correct it."""


class WaitingStoppedError(ModelServerError):
    """The rollout was told to stop while the client waited for the server."""


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
    """What the server wants back with it, under the names it came with: `ModelReply.reasoning_fields`."""


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
    """What has to go back to the server with this reply, under the names it came with: its reasoning fields, `content`
    where the reasoning stood in the text, or `output` for the output items of the Responses interface."""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: str = "stop"
    """As the server named it, but always `length` where the reply was cut off at a limit."""
    raw: dict[str, JsonValue] = Field(default_factory=dict)
    """The reply as the provider sent it; assembled, where it came as a stream."""
    note: str = ""
    """What the client noticed and a person should know."""


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
    stopping: threading.Event | None = None
    """Once it is set, waiting ends and no further request is sent."""


class ModelClient(Protocol):
    """Something that replies to a conversation."""

    @property
    def name(self) -> str:
        """The model's name, for the record."""
        ...

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
        """The next reply. Raises ModelServerError where there will be none."""
        ...
