"""Tests of going on with a rollout: what is on the disk counts, and nothing else does."""

import fcntl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from scripted import ScriptedModel, ScriptedTools, call, compile_call, resume, roll_out

from agent.budget import Budget
from agent.model import KeyRefusedError, ModelReply, QuotaError, ToolMessage
from agent.recorded import RecordedModel
from agent.resuming import can_go_on, resumed, spending_of_run
from runs import accounting
from runs import events as events_module
from runs.accounting import spending_of
from runs.config import Limits, Prices, Spending
from runs.events import (
    BudgetSpent,
    Culprit,
    Ended,
    EndReason,
    Event,
    ModelReplied,
    Resumed,
    Submitted,
    ToolReturned,
    Usage,
)
from runs.store import RunDirectory
from runs.summary import summarize
from tasks.errors import HarnessError, ModelServerError, UnavailableError, UsageError
from tools.candidate import Candidate
from tools.results import ToolReply
from tools.verdict import Verdict

USAGE = Usage(input_tokens=1000, output_tokens=100)
COMPILE = ModelReply(text="trying", tool_calls=(compile_call("code 1"),), usage=USAGE)
SUBMIT = ModelReply(text="done", tool_calls=(call("submit"),), usage=USAGE)
PRICES = Prices(input=1.0, cached_input=0.1, output=10.0, as_of="2026-01-01")


def test_interrupted_rollout_goes_on_in_the_same_transcript(tmp_path: Path) -> None:
    _, before = roll_out(tmp_path, ScriptedModel([COMPILE, KeyboardInterrupt()]), ScriptedTools(), prices=PRICES)
    model = ScriptedModel([SUBMIT])
    ended, events = resume(tmp_path, model, ScriptedTools(), prices=PRICES)
    assert ended.reason is EndReason.SUBMITTED
    assert events[: len(before)] == before
    assert [event.sequence for event in events] == list(range(len(events)))
    (again,) = (event for event in events if isinstance(event, Resumed))
    assert (again.turn, again.spent.turns, again.spent.tokens) == (1, 1, 1100)
    assert [message.role for message in model.asked[0]] == ["system", "user", "assistant", "tool"]
    summary = summarize(events)
    assert summary.spent is not None
    assert (summary.reason, summary.spent.turns, summary.spent.input_tokens) == (EndReason.SUBMITTED, 2, 2000)
    # By hand: 2 x (1,000 x 1.00 + 100 x 10.00) dollars for a million.
    assert summary.spent.dollars == pytest.approx(0.004)
    assert events[-2].event == "budget" and events[-2].spent.dollars == pytest.approx(0.004)


def test_submit_means_the_candidate_compiled_before_the_interruption(tmp_path: Path) -> None:
    first = ModelReply(
        text="", tool_calls=(compile_call("one", "a"), compile_call("two", "b"), compile_call("one", "c"))
    )
    roll_out(tmp_path, ScriptedModel([first, KeyboardInterrupt()]), ScriptedTools())
    _, events = resume(tmp_path, ScriptedModel([SUBMIT]), ScriptedTools())
    submitted = next(event for event in events if isinstance(event, Submitted))
    assert submitted.candidate == Candidate("one").id


def test_calls_that_were_not_carried_out_yet_are_and_the_others_are_not_again(tmp_path: Path) -> None:
    class Interrupted(ScriptedTools):
        """Is interrupted in its second call."""

        def call(self, name: str, arguments: str) -> ToolReply:
            if self.calls:
                raise KeyboardInterrupt
            return super().call(name, arguments)

    both = ModelReply(text="", tool_calls=(compile_call("one", "a"), compile_call("two", "b")))
    roll_out(tmp_path, ScriptedModel([both]), Interrupted())
    tools, model = ScriptedTools(), ScriptedModel([SUBMIT])
    _, events = resume(tmp_path, model, tools)
    assert [name for name, _ in tools.calls] == ["compile_kernel", "submit"]
    assert [event.call_id for event in events if isinstance(event, ToolReturned)][:2] == ["a", "b"]
    assert [message.call_id for message in model.asked[0] if isinstance(message, ToolMessage)] == ["a", "b"]


def test_submission_that_was_carried_out_is_not_again(tmp_path: Path) -> None:
    """Killed after the result of `submit`, before `submitted` and `ended` were written."""
    _, whole = roll_out(tmp_path, ScriptedModel([COMPILE, SUBMIT]), ScriptedTools())
    path = RunDirectory(tmp_path).transcript("rollout-1")
    lines = path.read_bytes().splitlines(keepends=True)
    assert [event.event for event in whole[-4:]] == ["tool_result", "submitted", "budget", "ended"]
    for kept in (-3, -2, -1):
        path.write_bytes(b"".join(lines[:kept]))
        tools = ScriptedTools()
        ended, events = resume(tmp_path, ScriptedModel([]), tools)
        assert (ended.reason, ended.message) == (EndReason.SUBMITTED, "correct")
        assert tools.calls == []
        assert sum(isinstance(event, Submitted) for event in events) == 1


@pytest.mark.parametrize(
    ("error", "culprit"), [(HarnessError("gone"), Culprit.HARNESS), (UnavailableError("no GPU"), Culprit.MACHINE)]
)
def test_call_at_which_a_tool_failed_is_carried_out_when_it_goes_on(
    tmp_path: Path, error: Exception, culprit: Culprit
) -> None:
    ended, events = roll_out(tmp_path, ScriptedModel([COMPILE]), ScriptedTools(raises=error))
    assert (ended.reason, ended.culprit) == (EndReason.TOOL_FAULT, culprit)
    assert can_go_on(events, Limits())
    tools = ScriptedTools()
    ended, _ = resume(tmp_path, ScriptedModel([SUBMIT]), tools)
    assert ended.reason is EndReason.SUBMITTED
    assert [name for name, _ in tools.calls] == ["compile_kernel", "submit"]


def test_submission_that_failed_by_our_fault_may_be_made_again(tmp_path: Path) -> None:
    ended, events = roll_out(tmp_path, ScriptedModel([COMPILE, SUBMIT]), ScriptedTools(verdict=Verdict.UNAVAILABLE))
    assert (ended.reason, ended.culprit) == (EndReason.TOOL_FAULT, Culprit.MACHINE)
    model = ScriptedModel([SUBMIT])
    ended, events = resume(tmp_path, model, ScriptedTools())
    assert ended.reason is EndReason.SUBMITTED
    assert sum(isinstance(event, Submitted) for event in events) == 1


@pytest.mark.parametrize(
    ("script", "limits", "reason", "culprit", "goes_on"),
    [
        ([COMPILE, SUBMIT], Limits(turns=9), EndReason.SUBMITTED, Culprit.NOBODY, False),
        ([ModelReply(text="")] * 4, Limits(turns=9), EndReason.MODEL_STOPPED, Culprit.MODEL, False),
        ([COMPILE] * 9, Limits(turns=9), EndReason.STUCK, Culprit.MODEL, False),
        ([COMPILE] * 2, Limits(turns=2), EndReason.TURN_LIMIT, Culprit.BUDGET, False),
        ([COMPILE, QuotaError("no money")], Limits(turns=9), EndReason.QUOTA_EXHAUSTED, Culprit.BUDGET, True),
        ([COMPILE, ModelServerError("gone")], Limits(turns=9), EndReason.MODEL_SERVER_ERROR, Culprit.SERVER, True),
        ([COMPILE, KeyRefusedError("no")], Limits(turns=9), EndReason.MODEL_SERVER_ERROR, Culprit.PERSON, True),
        ([COMPILE, KeyboardInterrupt()], Limits(turns=9), EndReason.INTERRUPTED, Culprit.PERSON, True),
    ],
)
def test_every_end_says_whose_fault_it_is_and_whether_the_rollout_can_go_on(
    tmp_path: Path,
    script: list[ModelReply | BaseException],
    limits: Limits,
    reason: EndReason,
    culprit: Culprit,
    goes_on: bool,
) -> None:
    ended, events = roll_out(tmp_path, ScriptedModel(script), ScriptedTools(), limits)
    assert (ended.reason, ended.culprit) == (reason, culprit)
    assert can_go_on(events, limits) is goes_on
    assert summarize(events).culprit is culprit


def test_rollout_that_ended_by_a_limit_can_go_on_once_it_is_raised(tmp_path: Path) -> None:
    _, events = roll_out(tmp_path, ScriptedModel([COMPILE] * 2), ScriptedTools(), Limits(turns=2))
    assert not can_go_on(events, Limits(turns=2))
    assert can_go_on(events, Limits(turns=3))
    ended, events = resume(tmp_path, ScriptedModel([COMPILE]), ScriptedTools(), Limits(turns=3))
    assert (ended.reason, ended.turn) == (EndReason.TURN_LIMIT, 3)
    again = next(event for event in events if isinstance(event, Resumed))
    assert again.limits == Limits(turns=3)


def test_end_in_the_middle_is_no_end(tmp_path: Path) -> None:
    _, events = roll_out(tmp_path, ScriptedModel([COMPILE, KeyboardInterrupt()]), ScriptedTools())
    goes_on = Resumed(turn=1, spent=Spending(), limits=Limits(), gap_s=1.0)
    summary = summarize((*events, goes_on))
    assert (summary.reason, summary.culprit, summary.message) == (None, None, "no end was recorded")


def test_two_processes_cannot_go_on_with_the_same_rollout(tmp_path: Path) -> None:
    roll_out(tmp_path, ScriptedModel([COMPILE, KeyboardInterrupt()]), ScriptedTools())
    path = RunDirectory(tmp_path).transcript("rollout-1")
    before = path.read_bytes()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="Another process is writing"):
            resume(tmp_path, ScriptedModel([SUBMIT]), ScriptedTools())
    assert path.read_bytes() == before


def test_transcript_that_grew_after_it_was_read_is_not_gone_on_with(tmp_path: Path) -> None:
    _, stale = roll_out(tmp_path, ScriptedModel([COMPILE, KeyboardInterrupt()]), ScriptedTools())
    resume(tmp_path, ScriptedModel([SUBMIT]), ScriptedTools())
    rollout = resumed(
        RunDirectory(tmp_path), stale, ScriptedModel([SUBMIT]), ScriptedTools(), Budget(Limits(), None), lambda _: None
    )
    with pytest.raises(UsageError, match=r"written to .* meanwhile"):
        rollout.run()


def test_recorded_model_goes_on_after_the_replies_already_given(tmp_path: Path) -> None:
    _, recording = roll_out(tmp_path / "first", ScriptedModel([COMPILE, SUBMIT]), ScriptedTools())
    _, before = roll_out(tmp_path / "second", ScriptedModel([COMPILE, KeyboardInterrupt()]), ScriptedTools())
    run = RunDirectory(tmp_path / "second")
    budget = Budget(Limits(), None, before=spending_of(before))
    resumed(run, before, RecordedModel(recording), ScriptedTools(), budget, lambda _: None).run()
    replies = [event.text for event in run.events("rollout-1") if isinstance(event, ModelReplied)]
    assert replies == ["trying", "done"]


def test_time_between_does_not_count_and_a_clock_that_was_set_back_hurts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        """A day further at each look, then back by a year."""

        looks = 0

        @classmethod
        def now(cls, _: object = None) -> "Clock":
            cls.looks += 1
            days = cls.looks if cls.looks < 9 else -365
            return cls(2026, 6, 1, tzinfo=UTC) + timedelta(days=days)

    monkeypatch.setattr(events_module, "datetime", Clock)
    monkeypatch.setattr(accounting, "datetime", Clock)
    limits = Limits(turns=9, seconds=60.0)
    roll_out(tmp_path, ScriptedModel([COMPILE, KeyboardInterrupt()]), ScriptedTools(), limits)
    ended, events = resume(tmp_path, ScriptedModel([COMPILE, COMPILE, SUBMIT]), ScriptedTools(), limits)
    assert ended.reason is EndReason.SUBMITTED
    times = [event.time for event in events if event.time is not None]
    assert len(times) == len(events)
    assert times != sorted(times)
    spent = summarize(events).spent
    assert spent is not None and 0 <= spent.seconds < 60
    again = next(event for event in events if isinstance(event, Resumed))
    assert again.gap_s >= 0


def test_spending_of_a_killed_rollout_is_what_was_counted_and_timed_since(tmp_path: Path) -> None:
    _, events = roll_out(tmp_path, ScriptedModel([COMPILE, COMPILE, SUBMIT]), ScriptedTools())

    def timed(event: Event, seconds: float) -> Event:
        if isinstance(event, BudgetSpent):
            return event.model_copy(update={"spent": event.spent.model_copy(update={"seconds": seconds})})
        return (
            event.model_copy(update={"seconds": seconds}) if isinstance(event, ModelReplied | ToolReturned) else event
        )

    second = [event.sequence for event in events if event.event == "model_reply"][1]
    killed = [timed(event, 10.0 if event.sequence < second else 3.0) for event in events[: second + 2]]
    assert spending_of(killed).seconds == 10.0 + 3.0 + 3.0
    assert spending_of([event.model_copy(update={"copied": True}) for event in killed]) == Spending()


def test_spending_of_a_run_adds_all_but_the_seconds_up(tmp_path: Path) -> None:
    rollouts = []
    for name in ("a", "b"):
        _, events = roll_out(tmp_path / name, ScriptedModel([COMPILE, SUBMIT]), ScriptedTools(), prices=PRICES)
        last = events[-2]
        assert isinstance(last, BudgetSpent)
        shared = last.model_copy(update={"run": Spending(seconds=50.0), "spent": Spending(seconds=40.0)})
        rollouts.append((*events[:-2], shared, events[-1]))
    spent = spending_of_run(rollouts)
    assert (spent.turns, spent.input_tokens, spent.output_tokens, spent.seconds) == (4, 4000, 400, 50.0)
    assert spent.dollars == pytest.approx(0.008)


def test_transcripts_from_before_culprits_tell_them_by_the_reason() -> None:
    line = '{"sequence":3,"turn":1,"time":"2026-01-01T00:00:00Z","event":"ended","reason":"tool_fault","message":"x"}'
    assert Ended.model_validate_json(line).culprit is Culprit.HARNESS
