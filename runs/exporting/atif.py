"""A rollout as a trajectory of ATIF v1.7 (RFC 0001 of the Harbor project), whose schema allows only its own fields.

What it has no field for stands in `extra`: of the root, the run, the task, the end and the reward; of a result, the
verdict and the figures; of a call whose arguments are no JSON object, their text.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from pydantic import Field, JsonValue

from runs.arguments import parsed_arguments
from runs.config import RunConfig
from runs.events import Event, Imported, ModelReplied, Nudged, RolloutStarted, ToolCall, ToolReturned
from runs.exporting.reward import Reward, reward_of
from runs.exporting.turns import Turn, counted, parts_of
from runs.summary import call_row, end_of, started, summarize
from tasks.record import Record

_UNKNOWN = "unknown"
"""The format wants an agent's name and version, and an imported file need not say them."""

VERSION: Final = "ATIF-v1.7"


class Call(Record):
    """A tool call."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, JsonValue]
    extra: dict[str, JsonValue] | None = None


class Result(Record):
    """The answer to a call."""

    source_call_id: str | None
    content: str
    extra: dict[str, JsonValue] | None = None


class Observation(Record):
    """The answers to a step's calls."""

    results: tuple[Result, ...]


class Metrics(Record):
    """The tokens of a step."""

    prompt_tokens: int
    """The cached ones included."""
    completion_tokens: int
    cached_tokens: int
    cost_usd: float | None = None
    extra: dict[str, JsonValue] | None = None


class Step(Record):
    """One message, or one reply with its calls and their answers."""

    step_id: int
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    message: str
    reasoning_content: str | None = None
    tool_calls: tuple[Call, ...] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    """True for the history that a fork took over."""
    llm_call_count: int | None = None
    extra: dict[str, JsonValue] | None = None


class Agent(Record):
    """Who made the trajectory."""

    name: str
    version: str
    model_name: str
    tool_definitions: tuple[dict[str, JsonValue], ...] | None = None


class FinalMetrics(Record):
    """The totals of a trajectory."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int


class RootExtra(Record):
    """What we know of a rollout beside the format."""

    run: str
    rollout: str
    task: str
    target: str | None
    provenance: str
    ended: str | None
    reward: Reward | None
    imported: tuple[JsonValue, ...] = ()


class Trajectory(Record):
    """The root of a file."""

    schema_version: Literal["ATIF-v1.7"] = VERSION
    session_id: str
    trajectory_id: str
    agent: Agent
    steps: tuple[Step, ...] = Field(min_length=1)
    final_metrics: FinalMetrics
    extra: RootExtra


def trajectory_text(config: RunConfig, events: Sequence[Event]) -> str:
    """One rollout as the text of an ATIF file."""
    return json.dumps(_present(_trajectory(config, events)), indent=2)


def _present(value: object) -> object:
    """A value in JSON's types, without the fields that are None; nulls that a model or a file wrote stay."""
    if isinstance(value, Record):
        return {name: _present(item) for name, item in value if item is not None}
    return [_present(item) for item in value] if isinstance(value, tuple) else value


def _trajectory(config: RunConfig, events: Sequence[Event]) -> Trajectory:
    first = started(events)
    summary = summarize(events)
    steps = tuple(
        step.model_copy(update={"step_id": number})
        for number, step in enumerate(_steps(first, events, made_here=config.imported_from is None), start=1)
    )
    left = [event.raw for event in events if isinstance(event, Imported) and _source(event) is None]
    ended = end_of(events)
    return Trajectory(
        session_id=config.id,
        trajectory_id=f"{config.id}/{first.rollout}",
        agent=_agent(config, first),
        steps=steps,
        final_metrics=_totals(events, len(steps)),
        extra=RootExtra(
            run=config.id,
            rollout=first.rollout,
            task=first.task,
            target=first.target,
            provenance=config.provenance,
            ended=None if ended is None else f"{ended.reason}: {ended.message}",
            reward=reward_of(summary),
            imported=tuple(left),
        ),
    )


def _agent(config: RunConfig, first: RolloutStarted) -> Agent:
    made_here = config.imported_from is None
    return Agent(
        name="kernelwright" if made_here else _UNKNOWN,
        version=config.versions.get("kernelwright", _UNKNOWN),
        model_name=first.model,
        tool_definitions=first.tools or None,
    )


def _totals(events: Sequence[Event], steps: int) -> FinalMetrics:
    """The totals, as far as every reply's part is known; a fork's copied history was paid for elsewhere."""
    replies = [event for event in events if isinstance(event, ModelReplied) and not event.copied]
    usages = [usage for reply in replies if (usage := counted(reply.usage)) is not None]
    costs = [reply.cost_usd for reply in replies if reply.cost_usd is not None]
    if not usages or len(usages) < len(replies):
        return FinalMetrics(total_steps=steps)
    return FinalMetrics(
        total_prompt_tokens=sum(usage.input_tokens for usage in usages),
        total_completion_tokens=sum(usage.output_tokens for usage in usages),
        total_cached_tokens=sum(usage.cached_tokens for usage in usages),
        total_cost_usd=sum(costs) if len(costs) == len(replies) else None,
        total_steps=steps,
    )


def _steps(first: RolloutStarted, events: Sequence[Event], *, made_here: bool) -> Iterator[Step]:
    """The steps, not yet numbered."""
    began = _timestamp(first.time)
    if first.system_prompt:
        yield Step(step_id=0, timestamp=began, source="system", message=first.system_prompt)
    if first.opening:
        yield Step(step_id=0, timestamp=began, source="user", message=first.opening)
    for part in parts_of(events):
        match part:
            case Turn():
                yield _turn(part, made_here=made_here)
            case Nudged():
                yield Step(step_id=0, timestamp=_timestamp(part.time), source="user", message=part.text)
            case Imported() if _source(part) is not None:
                yield _said(part)


def _source(event: Imported) -> Literal["system", "user"] | None:
    match event.role:
        case "system" | "developer":
            return "system"
        case "user":
            return "user"
        case _:
            return None


def _said(event: Imported) -> Step:
    return Step(
        step_id=0,
        timestamp=_timestamp(event.time),
        source=_source(event) or "user",
        message=event.text,
        extra={"imported": event.raw},
    )


def _turn(turn: Turn, *, made_here: bool) -> Step:
    reply = turn.reply
    return Step(
        step_id=0,
        timestamp=_timestamp(reply.time),
        source="agent",
        message=reply.text,
        reasoning_content=reply.reasoning or None,
        tool_calls=tuple(map(_call, reply.tool_calls)) or None,
        observation=Observation(results=tuple(map(_result, turn.results))) if turn.results else None,
        metrics=_metrics(turn),
        is_copied_context=True if reply.copied else None,
        llm_call_count=1 if made_here else None,
        extra=None if reply.finish_reason is None else {"finish_reason": reply.finish_reason},
    )


def _call(call: ToolCall) -> Call:
    arguments = parsed_arguments(call.arguments)
    return Call(
        tool_call_id=call.id,
        function_name=call.name,
        arguments=arguments or {},
        extra=None if arguments is not None else {"arguments_text": call.arguments},
    )


def _result(event: ToolReturned) -> Result:
    row = call_row(event)
    figures: dict[str, JsonValue] = {
        "candidate": row.candidate,
        "verdict": row.outcome.verdict,
        "median_ns": row.outcome.median_ns,
        "speedup": row.outcome.speedup,
        "seconds": row.seconds,
    }
    known = {name: value for name, value in figures.items() if value is not None}
    return Result(source_call_id=event.call_id, content=event.reply.text, extra=known)


def _metrics(turn: Turn) -> Metrics | None:
    usage = counted(turn.reply.usage)
    if usage is None:
        return None
    return Metrics(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost_usd=turn.reply.cost_usd,
        extra={"reasoning_tokens": usage.reasoning_tokens},
    )


def _timestamp(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")
