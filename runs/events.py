"""The events of a transcript: what happened in one rollout, told apart by `event`, one JSON line each."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, JsonValue, TypeAdapter

from runs.config import Limits, Spending
from runs.origin import Origin
from tasks.record import Record
from tasks.spec import Target
from tools.briefing import Briefing
from tools.results import Evaluation, ToolReply

SCHEMA_VERSION: Final = 1


class Culprit(StrEnum):
    """Whose doing the end of a rollout is."""

    NOBODY = "nobody"
    MODEL = "model"
    BUDGET = "budget"
    SERVER = "server"
    MACHINE = "machine"
    HARNESS = "harness"
    PERSON = "person"


class EndReason(StrEnum):
    """Why a rollout ended."""

    SUBMITTED = "submitted"
    """The model submitted a candidate and it was evaluated."""
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    COST_LIMIT = "cost_limit"
    GPU_LIMIT = "gpu_limit"
    QUOTA_EXHAUSTED = "quota_exhausted"
    """The account at the model's server has nothing left."""
    MODEL_STOPPED = "model_stopped"
    """Several replies in a row held no tool call that could be carried out."""
    STUCK = "stuck"
    """The model made the same calls again and again, with the same results."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The conversation no longer fits the model, and nothing was left to remove from it."""
    MODEL_SERVER_ERROR = "model_server_error"
    """The model's server failed for good."""
    RECORDING_EXHAUSTED = "recording_exhausted"
    """The recorded transcript holds no further reply."""
    TOOL_FAULT = "tool_fault"
    """The machine or the harness failed; never counted against the model."""
    STORAGE_FAULT = "storage_fault"
    """The run's directory can no longer be written, for example because the disk is full."""
    INTERRUPTED = "interrupted"
    """The person at the keyboard stopped it."""
    INTERNAL_ERROR = "internal_error"
    """An exception that nobody foresaw; a defect of Kernelwright."""
    IMPORTED = "imported"
    """The imported file ends here. Why the rollout ended is not known."""


_CULPRITS = {
    EndReason.SUBMITTED: Culprit.NOBODY,
    EndReason.TURN_LIMIT: Culprit.BUDGET,
    EndReason.TOKEN_LIMIT: Culprit.BUDGET,
    EndReason.TIME_LIMIT: Culprit.BUDGET,
    EndReason.COST_LIMIT: Culprit.BUDGET,
    EndReason.GPU_LIMIT: Culprit.BUDGET,
    EndReason.QUOTA_EXHAUSTED: Culprit.BUDGET,
    EndReason.MODEL_STOPPED: Culprit.MODEL,
    EndReason.STUCK: Culprit.MODEL,
    EndReason.CONTEXT_OVERFLOW: Culprit.MODEL,
    EndReason.MODEL_SERVER_ERROR: Culprit.SERVER,
    EndReason.RECORDING_EXHAUSTED: Culprit.NOBODY,
    EndReason.TOOL_FAULT: Culprit.HARNESS,
    EndReason.STORAGE_FAULT: Culprit.MACHINE,
    EndReason.INTERRUPTED: Culprit.PERSON,
    EndReason.INTERNAL_ERROR: Culprit.HARNESS,
    EndReason.IMPORTED: Culprit.NOBODY,
}


def usual_culprit(reason: EndReason) -> Culprit:
    """Who is behind a reason where nothing more is known."""
    return _CULPRITS[reason]


def _now() -> datetime:
    return datetime.now(UTC)


class Stamped(Record):
    """What every event carries."""

    sequence: int = 0
    """The event's place in its transcript, given by the writer."""
    turn: int
    """The model reply it belongs to, counted from 1; 0 before the first."""
    time: AwareDatetime | None = Field(default_factory=_now)
    """By the machine's clock, which may be set back: nothing is derived from the order of times. None where an imported
    file does not say it."""
    copied: bool = False
    """True for the history that a fork took over: it happened, and was paid for, in the rollout that it comes from."""


class ToolCall(Record):
    """One tool call of a model's reply."""

    id: str
    name: str
    arguments: str
    """The raw text the model wrote; it need not be JSON."""


class Usage(Record):
    """The tokens of one reply, as the server counted them; zeros where nobody did."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of the input that the server had in its cache."""
    reasoning_tokens: int = 0
    """The part of the output that is reasoning."""
    estimated: bool = False
    """True where the server counted nothing, so that the figures are derived from lengths of text."""


class RolloutStarted(Stamped):
    """The first event: everything the model was told."""

    event: Literal["rollout_started"] = "rollout_started"
    schema_version: Literal[1] = SCHEMA_VERSION
    rollout: str
    task: str
    target: Target | None
    """None where an imported file does not say it."""
    model: str
    limits: Limits
    system_prompt: str
    opening: str
    """The first message of the user's side."""
    origin: Origin | None = None
    """What it started from; None in transcripts from before that was said."""
    tools: tuple[dict[str, JsonValue], ...]
    """The tools' definitions, in the form of Chat Completions."""
    briefing: Briefing | None
    """None for an imported transcript: nobody here measured the machine it was made on."""


class ModelReplied(Stamped):
    """One reply of the model, whole."""

    event: Literal["model_reply"] = "model_reply"
    text: str
    reasoning: str
    """As text, whatever the server called it."""
    reasoning_fields: dict[str, JsonValue] = Field(default_factory=dict)
    """What has to be passed back to the server, under the names it came with."""
    tool_calls: tuple[ToolCall, ...]
    usage: Usage | None
    """None where an imported file does not say it."""
    finish_reason: str | None
    """None where an imported file does not say it."""
    raw: dict[str, JsonValue]
    """The reply as the provider sent it; of an imported reply, the part of the file that it was read from."""
    note: str = ""
    """What the client noticed and a person should know, such as a server that seems to cut conversations off."""
    seconds: float | None
    """None where an imported file does not say it."""
    cost_usd: float | None
    """None where the model's prices are not known."""


class ToolReturned(Stamped):
    """The one result of one tool call."""

    event: Literal["tool_result"] = "tool_result"
    call_id: str
    tool: str
    reply: ToolReply
    executed: bool
    """False where the loop answered in the tool's place, for example because the reply was cut off."""
    seconds: float | None
    """None where an imported file does not say it."""


class Nudged(Stamped):
    """What the model was told at the end of a turn in which nothing could be carried out."""

    event: Literal["nudge"] = "nudge"
    text: str


class Retried(Stamped):
    """A request to the model's server that failed and will be sent again."""

    event: Literal["retry"] = "retry"
    attempt: int
    error: str
    wait_s: float


class Compacted(Stamped):
    """The oldest turns were taken out of the conversation, because it no longer fitted the model."""

    event: Literal["compaction"] = "compaction"
    turns_removed: int
    turns_kept: int
    tokens_before: int | None = None
    """Of the whole conversation, estimated; None in transcripts from before it was."""
    tokens_after: int | None = None
    limit_tokens: int | None = None
    """What the model is taken to take at most since its server refused the conversation; None where it did not."""
    note: str = ""
    """What stands in the removed turns' place: the best candidate, all attempts, the last profile."""


class BudgetSpent(Stamped):
    """What the rollout has spent after a turn, and what is left."""

    event: Literal["budget"] = "budget"
    spent: Spending
    left: Limits
    run: Spending | None = None
    """What all rollouts of the run had spent by then; None where they share no budget."""


class Submitted(Stamped):
    """The model's final answer and its evaluation."""

    event: Literal["submitted"] = "submitted"
    candidate: str
    evaluation: Evaluation


class Imported(Stamped):
    """A part of an imported file that no other event can hold; the model may or may not have seen it."""

    event: Literal["imported"] = "imported"
    role: str
    """Whose words these are, as the file has it, for example `user`; empty where they are nobody's."""
    text: str
    raw: JsonValue
    """The part as it stands in the file."""


class Ended(Stamped):
    """The end of a rollout: its last event, unless it was resumed."""

    event: Literal["ended"] = "ended"
    reason: EndReason
    message: str
    culprit: Culprit = Field(default_factory=lambda known: usual_culprit(known["reason"]))


class Resumed(Stamped):
    """The rollout goes on, after it ended or after its process was killed; a line torn off before this is void."""

    event: Literal["resumed"] = "resumed"
    spent: Spending
    """Before; `seconds` are those in which it was worked on."""
    limits: Limits
    """From now on."""
    gap_s: float
    """How long nobody worked on it, by the machine's clock."""


Event = Annotated[
    RolloutStarted
    | ModelReplied
    | ToolReturned
    | Nudged
    | Retried
    | Compacted
    | BudgetSpent
    | Submitted
    | Imported
    | Ended
    | Resumed,
    Field(discriminator="event"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads any event from its JSON line."""
