"""Tests of the ledger of attempts."""

from pathlib import Path

from scripted import ScriptedModel, ScriptedTools, compile_call, roll_out, timed
from scripted import call as tool_call

from agent.ledger import IDEA_LENGTH, Ledger
from agent.model import ModelReply
from runs.config import Limits
from runs.events import Event, ToolReturned
from tools.candidate import Candidate
from tools.results import Fault, ToolReply, ToolResult
from tools.verdict import Verdict

DOCUMENTED = '"""Taps in registers.\n\nAnd more."""\n'
ID = Candidate("code").id


def result(value: ToolResult, tool: str = "benchmark", turn: int = 1, text: str = "") -> ToolReturned:
    reply = ToolReply(text=text, result=value, candidate=ID)
    return ToolReturned(turn=turn, call_id="x", tool=tool, reply=reply, executed=True, seconds=1.0)


def fault(verdict: Verdict) -> Fault:
    return Fault(stage="verify", verdict=verdict, message="no", candidate=ID)


def of_rollout(path: Path, *script: ModelReply) -> Ledger:
    speedups = {"slow": 0.5, "fast": 2.0, DOCUMENTED: 1.5}
    _, events = roll_out(path, ScriptedModel(list(script)), ScriptedTools(speedups=speedups), Limits(turns=len(script)))
    return Ledger(events)


def test_attempts_have_idea_and_outcome_in_the_order_of_their_first_compilation(tmp_path: Path) -> None:
    benchmark = tool_call("benchmark", "b")
    ledger = of_rollout(
        tmp_path,
        ModelReply(text="\n# Tiles of 64.\nThen more.", tool_calls=(compile_call("slow", "a"), benchmark)),
        ModelReply(text="", tool_calls=(compile_call(DOCUMENTED, "a"), benchmark)),
        ModelReply(text="", tool_calls=(compile_call("fast", "a"), benchmark)),
        ModelReply(text="Back to the first.", tool_calls=(compile_call("slow", "a"),)),
    )
    assert [(each.candidate, each.turn, each.idea) for each in ledger.attempts] == [
        (Candidate("slow").id, 1, "Tiles of 64."),
        (Candidate(DOCUMENTED).id, 2, "Taps in registers."),
        (Candidate("fast").id, 3, ""),
    ]
    assert [(each.outcome.verdict, each.outcome.speedup) for each in ledger.attempts] == [
        ("correct", 0.5),
        ("correct", 1.5),
        ("correct", 2.0),
    ]
    assert ledger.best is not None and ledger.best.candidate == Candidate("fast").id


def test_ideas_are_short(tmp_path: Path) -> None:
    ledger = of_rollout(tmp_path, ModelReply(text="so " * 100, tool_calls=(compile_call("slow"),)))
    (attempt,) = ledger.attempts
    assert len(attempt.idea) <= IDEA_LENGTH and attempt.idea.endswith("so...")


def test_what_was_once_found_wrong_stays_wrong_and_is_never_the_best() -> None:
    ledger = Ledger([result(timed(ID, 3.0)), result(fault(Verdict.INCORRECT)), result(timed(ID, 3.0))])
    (attempt,) = ledger.attempts
    assert attempt.outcome.verdict == "incorrect"
    assert ledger.best is None


def test_fault_of_the_machine_says_nothing_about_a_candidate() -> None:
    """A rollout that was resumed after it would otherwise never be able to have this candidate for its best."""
    ledger = Ledger([result(timed(ID, 3.0)), result(fault(Verdict.UNAVAILABLE)), result(fault(Verdict.HARNESS_ERROR))])
    assert ledger.best is not None and ledger.best.outcome.speedup == 3.0


def test_of_several_measurements_the_one_with_the_highest_lower_bound_counts() -> None:
    ledger = Ledger([result(timed(ID, 2.0)), result(timed(ID, 3.0)), result(timed(ID, 1.0))])
    assert [each.outcome.speedup for each in ledger.attempts] == [3.0]


def test_same_events_make_the_same_ledger_one_by_one(tmp_path: Path) -> None:
    script: list[ModelReply | BaseException] = [
        ModelReply(text="One.", tool_calls=(compile_call("fast", "a"), tool_call("benchmark", "b")))
    ]
    events: tuple[Event, ...]
    _, events = roll_out(tmp_path, ScriptedModel(script), ScriptedTools(speedups={"fast": 2.0}), Limits(turns=1))
    ledger = Ledger()
    for event in events:
        ledger.see(event)
    assert ledger.attempts == Ledger(events).attempts and len(ledger.attempts) == 1


def test_last_profile_that_came_is_kept() -> None:
    profile = timed(ID, 1.0)
    first, second = (result(profile, "profile", turn, f"profile {turn}") for turn in (1, 2))
    failed = result(fault(Verdict.CRASHED), "profile", 3, "it crashed")
    assert Ledger([first, second, failed]).last_profile == f"candidate {ID}:\nprofile 2"
    assert Ledger().last_profile == ""
