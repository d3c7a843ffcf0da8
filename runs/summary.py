"""What can be derived from a transcript: the table of turns and the totals."""

from collections.abc import Sequence

from runs.accounting import spending_of
from runs.config import Spending
from runs.events import (
    Culprit,
    Ended,
    EndReason,
    Event,
    ModelReplied,
    Resumed,
    Retried,
    RolloutStarted,
    Submitted,
    ToolReturned,
)
from tasks.errors import RunFormatError
from tasks.record import Record
from tasks.spec import Target
from tools.profile_results import Profiled
from tools.results import Built, Evaluation, Fault, Interval, Timed, ToolResult, Verified
from tools.sanitizer_results import Sanitized
from tools.verdict import Verdict, culprit

_FAULTY = frozenset(verdict.value for verdict in Verdict if culprit(verdict) == "candidate")
SHORT_ID = 8
"""How many characters of a candidate's id are enough to tell candidates of one run apart."""


class Outcome(Record):
    """The answer to one tool call, in the three figures that tables show."""

    verdict: str
    """A verdict, or `built` for a candidate that compiles, or `refused` for a call that could not be carried out; of
    tools that give none, what they did: `profiled`, `disassembled`, `guide`, `compared`, for sanitize `clean` or
    `not_run`; `foreign` for an imported call, which nobody judged here."""
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
    copied_turns: int = 0
    """How many of them a fork took over."""
    spent: Spending | None
    """None where an imported file does not say it of every turn."""
    best: CallRow | None
    """The fastest candidate that was timed and that no tool has found wrong."""
    submitted: Outcome | None
    reason: EndReason | None
    """None where the rollout was killed, or is still going on."""
    culprit: Culprit | None = None
    """Whose doing its end is."""
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
    if isinstance(result, Verified):
        return Outcome(verdict="correct")
    if isinstance(result, Sanitized):
        return Outcome(verdict=_sanitized(result))
    if isinstance(result, Profiled):
        return Outcome(verdict=result.status, median_ns=result.call_ns)
    return Outcome(verdict=result.status)


def _sanitized(result: Sanitized) -> str:
    if result.verdict is not Verdict.CORRECT:
        return result.verdict.value
    return "clean" if any(run.outcome == "clean" for run in result.runs) else "not_run"


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
    ended = end_of(events)
    submitted = next((event for event in reversed(events) if isinstance(event, Submitted)), None)
    return RolloutSummary(
        rollout=first.rollout,
        task=first.task,
        target=first.target,
        model=first.model,
        rows=rows,
        retries=sum(isinstance(event, Retried) for event in events),
        turns=sum(isinstance(event, ModelReplied) for event in events),
        copied_turns=sum(isinstance(event, ModelReplied) and event.copied for event in events),
        spent=_spent(events),
        best=best_row(rows),
        submitted=None if submitted is None else outcome_of(submitted.evaluation),
        reason=None if ended is None else ended.reason,
        culprit=None if ended is None else ended.culprit,
        message="no end was recorded" if ended is None else ended.message,
    )


def end_of(events: Sequence[Event]) -> Ended | None:
    """How the rollout ended; None where it was killed, or resumed and still goes on."""
    last = next((event for event in reversed(events) if isinstance(event, Ended | Resumed)), None)
    return last if isinstance(last, Ended) else None


def faulty(outcome: Outcome) -> bool:
    """Whether it says that the candidate is wrong, not that something else is or that it could not be found out."""
    return outcome.verdict in _FAULTY


def best_row(rows: Sequence[CallRow]) -> CallRow | None:
    """Of the candidates that no tool has found wrong, the measurement with the highest lower bound: a speedup that is
    high because the measurement was disturbed has a low one."""
    wrong = {row.candidate for row in rows if faulty(row.outcome)}
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


def _spent(events: Sequence[Event]) -> Spending | None:
    replies = [event for event in events if isinstance(event, ModelReplied)]
    known = all(reply.usage is not None and reply.seconds is not None for reply in replies)
    return spending_of(events) if known else None
