"""What can be derived from a transcript: the table of turns and the totals."""

from collections.abc import Sequence

from runs.config import Spending
from runs.events import (
    BudgetSpent,
    Ended,
    EndReason,
    Event,
    ModelReplied,
    Retried,
    RolloutStarted,
    Submitted,
    ToolReturned,
)
from tasks.errors import RunFormatError
from tasks.record import Record
from tasks.spec import Target
from tools.results import Built, Evaluation, Fault, Foreign, Interval, Refused, Timed, ToolResult

SHORT_ID = 8
"""How many characters of a candidate's id are enough to tell candidates of one run apart."""


UNJUDGED = "not judged here"
"""Stands for the verdict in what was imported."""


class Outcome(Record):
    """The answer to one tool call, in the three figures that tables show."""

    verdict: str
    """A verdict, or `built` for a candidate that compiles, `refused` for a call that could not be carried out,
    or `not judged here` for an imported one."""
    median_ns: float | None = None
    speedup: float | None = None
    speedup_interval: Interval | None = None


class CallRow(Record):
    """One tool call in the table of turns."""

    turn: int
    tool: str
    candidate: str | None
    outcome: Outcome
    seconds: float | None
    """None where an imported file does not say it."""


class RolloutSummary(Record):
    """One rollout in figures."""

    rollout: str
    task: str
    target: Target | None
    model: str
    rows: tuple[CallRow, ...]
    retries: int
    turns: int
    spent: Spending | None
    """None where an imported file does not say it of every turn."""
    best: CallRow | None
    """The fastest candidate that was timed and that no tool has found wrong."""
    submitted: Outcome | None
    reason: EndReason | None
    """None where the rollout was killed, or is still going on."""
    message: str


def outcome_of(result: ToolResult) -> Outcome:
    """The figures of one tool result."""
    if isinstance(result, Evaluation):
        return _timed(result.timed, result.verdict.value) if result.timed else Outcome(verdict=result.verdict.value)
    if isinstance(result, Timed):
        return _timed(result, "correct")
    if isinstance(result, Fault):
        return Outcome(verdict=result.verdict.value)
    if isinstance(result, Built):
        return Outcome(verdict="built")
    if isinstance(result, Refused):
        return Outcome(verdict="refused")
    if isinstance(result, Foreign):
        return Outcome(verdict=UNJUDGED)
    return Outcome(verdict="correct")


def call_row(event: ToolReturned) -> CallRow:
    """The row of one tool result."""
    return CallRow(
        turn=event.turn,
        tool=event.tool,
        candidate=event.reply.candidate,
        outcome=outcome_of(event.reply.result),
        seconds=event.seconds,
    )


def started(events: Sequence[Event]) -> RolloutStarted:
    """The event a transcript begins with."""
    if events and isinstance(events[0], RolloutStarted):
        return events[0]
    raise RunFormatError("The transcript does not begin with `rollout_started`; it was cut before anything happened.")


def summarize(events: Sequence[Event]) -> RolloutSummary:
    """The summary of a transcript, also of one that was cut short."""
    first = started(events)
    rows = tuple(call_row(event) for event in events if isinstance(event, ToolReturned))
    ended = next((event for event in reversed(events) if isinstance(event, Ended)), None)
    submitted = next((event for event in reversed(events) if isinstance(event, Submitted)), None)
    return RolloutSummary(
        rollout=first.rollout,
        task=first.task,
        target=first.target,
        model=first.model,
        rows=rows,
        retries=sum(isinstance(event, Retried) for event in events),
        turns=sum(isinstance(event, ModelReplied) for event in events),
        spent=_spending(events),
        best=_best(rows),
        submitted=None if submitted is None else outcome_of(submitted.evaluation),
        reason=None if ended is None else ended.reason,
        message="no end was recorded" if ended is None else ended.message,
    )


def _best(rows: Sequence[CallRow]) -> CallRow | None:
    """Of the candidates that no tool has found wrong, the measurement with the highest lower bound: a speedup that is
    high because the measurement was disturbed has a low one."""
    wrong = {row.candidate for row in rows if row.outcome.verdict not in ("correct", "built", "refused", UNJUDGED)}
    bounds = {
        row: row.outcome.speedup_interval.low
        for row in rows
        if row.outcome.speedup_interval is not None and row.candidate not in wrong
    }
    return max(bounds, key=lambda row: bounds[row], default=None)


def _timed(timed: Timed, verdict: str) -> Outcome:
    return Outcome(
        verdict=verdict,
        median_ns=timed.median_ns,
        speedup=timed.speedup,
        speedup_interval=timed.speedup_interval,
    )


def _spending(events: Sequence[Event]) -> Spending | None:
    """What was spent, counted from the replies, so that a killed rollout counts whole; None where it is not known."""
    replies = [event for event in events if isinstance(event, ModelReplied)]
    usages = [reply.usage for reply in replies if reply.usage is not None]
    times = [event.time for event in events if event.time is not None]
    if len(usages) < len(replies) or not times:
        return None
    costs = [reply.cost_usd for reply in replies if reply.cost_usd is not None]
    measured = [event.spent.seconds for event in events if isinstance(event, BudgetSpent)]
    elapsed = (times[-1] - times[0]).total_seconds()
    return Spending(
        turns=len(replies),
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        seconds=max([elapsed, *measured[-1:]]),
        dollars=sum(costs) if len(costs) == len(replies) and replies else None,
    )
