"""ATIF, the Agent Trajectory Interchange Format, versions 1.x (RFC 0001 of the Harbor project).

The prompt tokens of its metrics include the cached ones, as ours do. What its schema does not know is kept too.
"""

import json
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field, JsonValue

from runs.events import ToolCall, Usage
from runs.importing.document import ForeignForm, ForeignFormatError, parse_json, read_form, text_of, without
from runs.importing.draft import Draft, Reply

_MANY = 1 << 63
"""Not a number of tokens."""


class _CallExtra(ForeignForm):
    arguments_text: str | None = None


class _Call(ForeignForm):
    tool_call_id: str
    function_name: str
    arguments: dict[str, JsonValue]
    extra: _CallExtra | None = None

    @property
    def text(self) -> str:
        """The arguments as text: as the model wrote them where our own export kept that, else written anew."""
        kept = None if self.extra is None else self.extra.arguments_text
        return json.dumps(self.arguments) if kept is None else kept


class _Result(ForeignForm):
    source_call_id: str | None = None
    content: str | list[JsonValue] | None = None


class _Observation(ForeignForm):
    results: list[_Result]


class _Metrics(ForeignForm):
    prompt_tokens: int | None = Field(default=None, ge=0, lt=_MANY)
    completion_tokens: int | None = Field(default=None, ge=0, lt=_MANY)
    cached_tokens: int | None = Field(default=None, ge=0, lt=_MANY)
    cost_usd: float | None = Field(default=None, ge=0)


class _Step(ForeignForm):
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    message: str | list[JsonValue]
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None


class _Agent(ForeignForm):
    name: str
    model_name: str | None = None
    tool_definitions: list[dict[str, JsonValue]] | None = None


class _Trajectory(ForeignForm):
    schema_version: str = Field(pattern=r"^ATIF-v1\.\d+$")
    agent: _Agent
    steps: list[JsonValue] = Field(min_length=1)


def is_atif(value: JsonValue) -> bool:
    """Whether a value calls itself a trajectory of this format."""
    version = value.get("schema_version") if isinstance(value, dict) else None
    return isinstance(version, str) and version.startswith("ATIF-")


def read_atif(text: str) -> list[Draft]:
    """The trajectory of a file.

    Raises:
        ForeignFormatError: it does not have this form; the message says where.
    """
    value = parse_json(text)
    trajectory = read_form(_Trajectory, value, "")
    draft = Draft()
    draft.model = trajectory.agent.model_name or draft.model
    draft.tools = tuple(trajectory.agent.tool_definitions or ())
    draft.task = _stated_task(value)
    for number, raw in enumerate(trajectory.steps):
        _read_step(draft, raw, f"steps.{number}")
    draft.keep("", "", without(value, "steps"))
    return [draft]


def _stated_task(value: JsonValue) -> str | None:
    """The format has no field for it; our own export states it in `extra`."""
    extra = value.get("extra") if isinstance(value, dict) else None
    task = extra.get("task") if isinstance(extra, dict) else None
    return task if isinstance(task, str) else None


def _read_step(draft: Draft, raw: JsonValue, where: str) -> None:
    step = read_form(_Step, raw, where)
    time = _time(step.timestamp, where)
    text = text_of(step.message)
    known = ("step_id", "source", "timestamp", "message")
    plain = isinstance(step.message, str) and not without(raw, *known) and (time is None) == (step.timestamp is None)
    match step.source:
        case "system":
            draft.system(text, raw, plain=plain, time=time)
        case "user":
            draft.user(text, raw, plain=plain, time=time)
        case "agent":
            draft.reply(_reply(step, text, without(raw, "observation"), time))
            _read_results(draft, step, raw, time)


def _read_results(draft: Draft, step: _Step, raw: JsonValue, time: datetime | None) -> None:
    observation = raw.get("observation") if isinstance(raw, dict) else None
    if step.observation is None or not isinstance(observation, dict):
        return
    results = observation.get("results")
    for result, part in zip(step.observation.results, results if isinstance(results, list) else (), strict=True):
        known = ("source_call_id", *(("content",) if isinstance(result.content, str) else ()))
        # The format has one time a step; when its results came is not said.
        draft.result(result.source_call_id or "", text_of(result.content), without(part, *known), part)
    if rest := without(observation, "results"):
        draft.keep("", "", rest, time)


def _reply(step: _Step, text: str, raw: dict[str, JsonValue], time: datetime | None) -> Reply:
    calls = tuple(
        ToolCall(id=call.tool_call_id, name=call.function_name, arguments=call.text) for call in step.tool_calls or ()
    )
    metrics = step.metrics or _Metrics()
    return Reply(
        text=text,
        reasoning=step.reasoning_content or "",
        tool_calls=calls,
        raw=raw,
        usage=_usage(metrics),
        cost_usd=metrics.cost_usd,
        time=time,
    )


def _usage(metrics: _Metrics) -> Usage | None:
    """Both counts or none: half of one would read as a zero."""
    if metrics.prompt_tokens is None or metrics.completion_tokens is None:
        return None
    return Usage(
        input_tokens=metrics.prompt_tokens,
        output_tokens=metrics.completion_tokens,
        cached_tokens=metrics.cached_tokens or 0,
    )


def _time(timestamp: str | None, where: str) -> datetime | None:
    """The time of a step, in UTC; None for one without a zone, which may be any hour of a day."""
    if timestamp is None:
        return None
    try:
        found = datetime.fromisoformat(timestamp)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError) as error:
        raise ForeignFormatError(f"{where}.timestamp: {timestamp!r} is not a time in ISO 8601") from error
