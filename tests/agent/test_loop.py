"""Tests of the loop: every way a rollout ends, and that every call gets exactly one answer."""

import threading
import time
from pathlib import Path

import pytest
from scripted import ScriptedModel, ScriptedTools, compile_call, resume, roll_out
from scripted import call as tool_call

from agent.acting import MOST_NUDGES
from agent.model import (
    AssistantMessage,
    ContextOverflowError,
    ModelReply,
    RecordingExhaustedError,
    ToolMessage,
    UserMessage,
)
from runs.config import Limits, Prices
from runs.events import (
    BudgetSpent,
    Culprit,
    Ended,
    EndReason,
    Event,
    ModelReplied,
    Nudged,
    Submitted,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.summary import summarize
from tasks.errors import HarnessError, ModelServerError, UnavailableError
from tools.candidate import Candidate
from tools.results import Refused
from tools.verdict import Verdict

COMPILE = ModelReply(text="trying", tool_calls=(compile_call("code 1"),), finish_reason="tool_calls")
SUBMIT = ModelReply(text="done", tool_calls=(tool_call("submit"),), finish_reason="tool_calls")
SILENT = ModelReply(text="")


def kinds(events: tuple[Event, ...]) -> list[str]:
    return [event.event for event in events]


def answers(events: tuple[Event, ...]) -> list[ToolReturned]:
    return [event for event in events if isinstance(event, ToolReturned)]


def test_submit_ends_the_rollout(tmp_path: Path) -> None:
    ended, events = roll_out(tmp_path, ScriptedModel([COMPILE, SUBMIT]), ScriptedTools())
    assert ended.reason is EndReason.SUBMITTED
    assert kinds(events) == [
        "rollout_started",
        "model_reply",
        "tool_result",
        "budget",
        "model_reply",
        "tool_result",
        "submitted",
        "budget",
        "ended",
    ]
    assert [event.turn for event in events] == [0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert [event.sequence for event in events] == list(range(9))
    submitted = next(event for event in events if isinstance(event, Submitted))
    assert submitted.candidate == Candidate("code 1").id
    assert (tmp_path / "candidates" / f"{Candidate('code 1').id}.py").read_text() == "code 1"


def test_wrong_candidate_ends_the_rollout_as_submitted_too(tmp_path: Path) -> None:
    ended, _ = roll_out(tmp_path, ScriptedModel([COMPILE, SUBMIT]), ScriptedTools(verdict=Verdict.INCORRECT))
    assert ended.reason is EndReason.SUBMITTED
    assert ended.message.startswith("incorrect")


@pytest.mark.parametrize("verdict", [Verdict.UNAVAILABLE, Verdict.HARNESS_ERROR])
def test_fault_of_ours_is_no_submission(tmp_path: Path, verdict: Verdict) -> None:
    ended, events = roll_out(tmp_path, ScriptedModel([COMPILE, SUBMIT]), ScriptedTools(verdict=verdict))
    assert ended.reason is EndReason.TOOL_FAULT
    assert "submitted" not in kinds(events)


@pytest.mark.parametrize("error", [HarnessError("the worker is gone"), UnavailableError("no GPU")])
def test_exception_of_a_tool_ends_the_rollout(tmp_path: Path, error: Exception) -> None:
    ended, _ = roll_out(tmp_path, ScriptedModel([COMPILE]), ScriptedTools(raises=error))
    assert (ended.reason, ended.message) == (EndReason.TOOL_FAULT, f"compile_kernel: {error}")


def test_turn_limit_is_checked_before_asking(tmp_path: Path) -> None:
    model = ScriptedModel([COMPILE] * 3)
    ended, _ = roll_out(tmp_path, model, ScriptedTools(), Limits(turns=2))
    assert ended.reason is EndReason.TURN_LIMIT
    assert len(model.asked) == 2


def test_token_limit(tmp_path: Path) -> None:
    reply = COMPILE.model_copy(update={"usage": Usage(input_tokens=90, output_tokens=10)})
    model = ScriptedModel([reply] * 4)
    ended, _ = roll_out(tmp_path, model, ScriptedTools(), Limits(tokens=300))
    assert ended.reason is EndReason.TOKEN_LIMIT
    assert len(model.asked) == 3


def test_cost_limit_and_costs_in_the_log(tmp_path: Path) -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=400_000)
    prices = Prices(input=2.0, cached_input=0.5, output=10.0, as_of="2026-01-01")
    model = ScriptedModel([COMPILE.model_copy(update={"usage": usage})] * 3)
    ended, events = roll_out(tmp_path, model, ScriptedTools(), Limits(dollars=4.0), prices)
    assert ended.reason is EndReason.COST_LIMIT
    # By hand: 0.6 x 2.00 + 0.4 x 0.50 + 0.1 x 10.00 dollars a reply.
    assert [event.cost_usd for event in events if isinstance(event, ModelReplied)] == pytest.approx([2.4, 2.4])


def test_time_limit(tmp_path: Path) -> None:
    ended, _ = roll_out(tmp_path, ScriptedModel([]), ScriptedTools(), Limits(seconds=0.0))
    assert ended.reason is EndReason.TIME_LIMIT


def test_failure_of_the_server_after_time_is_up_counts_as_the_time_limit(tmp_path: Path) -> None:
    class SlowModel(ScriptedModel):
        def query(self, *_: object) -> ModelReply:
            time.sleep(0.06)
            raise ModelServerError("timed out")

    ended, _ = roll_out(tmp_path, SlowModel([]), ScriptedTools(), Limits(seconds=0.05))
    assert ended.reason is EndReason.TIME_LIMIT


def test_failure_of_the_server(tmp_path: Path) -> None:
    ended, _ = roll_out(tmp_path, ScriptedModel([COMPILE, ModelServerError("gone")]), ScriptedTools())
    assert (ended.reason, ended.message, ended.turn) == (EndReason.MODEL_SERVER_ERROR, "gone", 2)


def test_end_of_a_recording(tmp_path: Path) -> None:
    ended, _ = roll_out(tmp_path, ScriptedModel([RecordingExhaustedError("all given")]), ScriptedTools())
    assert ended.reason is EndReason.RECORDING_EXHAUSTED


def test_interrupt_leaves_a_complete_log(tmp_path: Path) -> None:
    ended, events = roll_out(tmp_path, ScriptedModel([COMPILE, KeyboardInterrupt()]), ScriptedTools())
    assert ended.reason is EndReason.INTERRUPTED
    assert events[-1] == ended


def test_interrupt_during_a_tool_leaves_a_complete_log(tmp_path: Path) -> None:
    ended, events = roll_out(tmp_path, ScriptedModel([COMPILE]), ScriptedTools(raises=KeyboardInterrupt()))
    assert ended.reason is EndReason.INTERRUPTED
    assert kinds(events)[-2:] == ["budget", "ended"]


def test_unforeseen_exception_is_logged_and_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        roll_out(tmp_path, ScriptedModel([ZeroDivisionError("oh")]), ScriptedTools())
    lines = (tmp_path / "rollout-1" / "transcript.jsonl").read_text().splitlines()
    last = Ended.model_validate_json(lines[-1])
    assert (last.reason, last.message) == (EndReason.INTERNAL_ERROR, "ZeroDivisionError: oh")


def test_silent_model_is_nudged_then_stopped(tmp_path: Path) -> None:
    model = ScriptedModel([SILENT] * (MOST_NUDGES + 1))
    ended, _ = roll_out(tmp_path, model, ScriptedTools())
    assert ended.reason is EndReason.MODEL_STOPPED
    nudges = [message for message in model.asked[-1] if isinstance(message, UserMessage)][1:]
    assert len(nudges) == MOST_NUDGES
    assert all("compile_kernel" in nudge.text for nudge in nudges)


def test_nudges_are_counted_in_a_row(tmp_path: Path) -> None:
    script = [SILENT, SILENT, SILENT, COMPILE, SILENT, SILENT, SILENT, SUBMIT]
    ended, _ = roll_out(tmp_path, ScriptedModel(script), ScriptedTools())
    assert ended.reason is EndReason.SUBMITTED


def test_broken_arguments_are_answered_and_never_sent_back(tmp_path: Path) -> None:
    """R27, with a finish reason that does not tell."""
    broken = ToolCall(id="x", name="compile_kernel", arguments='{"kernel_code": "import tor')
    model = ScriptedModel([ModelReply(text="", tool_calls=(broken,)), COMPILE, SUBMIT])
    ended, events = roll_out(tmp_path, model, ScriptedTools())
    assert ended.reason is EndReason.SUBMITTED
    replied = next(event for event in events if isinstance(event, ModelReplied))
    assert replied.tool_calls == (broken,)
    assert isinstance(answers(events)[0].reply.result, Refused)
    assistant, result = model.asked[1][-2:]
    assert isinstance(assistant, AssistantMessage) and assistant.tool_calls[0].arguments == "{}"
    assert result == ToolMessage(call_id="x", text="the arguments are not JSON")


def test_arguments_that_are_no_object_are_never_sent_back(tmp_path: Path) -> None:
    listed = ToolCall(id="x", name="submit", arguments="[1, 2]")
    model = ScriptedModel([ModelReply(text="", tool_calls=(listed,)), COMPILE, SUBMIT])
    roll_out(tmp_path, model, ScriptedTools())
    assistant = model.asked[1][-2]
    assert isinstance(assistant, AssistantMessage) and assistant.tool_calls[0].arguments == "{}"


def test_reply_that_was_cut_off_executes_nothing(tmp_path: Path) -> None:
    """R27."""
    # Complete JSON, and yet perhaps half of the code.
    cut = ModelReply(text="", tool_calls=(compile_call("half", "a"), compile_call("b", "b")), finish_reason="length")
    model, tools = ScriptedModel([cut, COMPILE, SUBMIT]), ScriptedTools()
    ended, events = roll_out(tmp_path, model, tools)
    assert ended.reason is EndReason.SUBMITTED
    assert [name for name, _ in tools.calls] == ["compile_kernel", "submit"]
    refused = answers(events)[:2]
    assert [(event.call_id, event.executed) for event in refused] == [("a", False), ("b", False)]
    assert isinstance(model.asked[1][-1], ToolMessage)


def test_model_that_never_sends_json_ends_at_its_limit_and_is_told_why_each_time(tmp_path: Path) -> None:
    """R28."""
    broken = ToolCall(id="x", name="compile_kernel", arguments='{"kernel_code": "import tor')
    reply = ModelReply(text="", tool_calls=(broken,), finish_reason="tool_calls")
    ended, events = roll_out(tmp_path, ScriptedModel([reply] * 9), ScriptedTools(), Limits(turns=6))
    assert ended.reason is EndReason.TURN_LIMIT
    assert [answer.reply.text.splitlines()[0] for answer in answers(events)] == ["the arguments are not JSON"] * 6


def test_model_whose_replies_are_all_cut_off_is_stopped(tmp_path: Path) -> None:
    """R28: without any limit of its own, and for the true reason."""
    cut = ModelReply(text="", tool_calls=(compile_call("half"),), finish_reason="length")
    ended, events = roll_out(tmp_path, ScriptedModel([cut] * (MOST_NUDGES + 1)), ScriptedTools(), Limits())
    assert ended.reason is EndReason.MODEL_STOPPED
    assert all("cut off" in answer.reply.text for answer in answers(events))


def test_text_that_was_cut_off_is_told_so(tmp_path: Path) -> None:
    model = ScriptedModel([ModelReply(text="I think", finish_reason="length"), COMPILE, SUBMIT])
    roll_out(tmp_path, model, ScriptedTools())
    told = model.asked[1][-1]
    assert isinstance(told, UserMessage) and "cut off" in told.text


def test_several_calls_run_in_order_and_submit_last(tmp_path: Path) -> None:
    calls = (tool_call("submit", "s"), compile_call("one", "a"), compile_call("two", "b"))
    tools = ScriptedTools()
    ended, events = roll_out(tmp_path, ScriptedModel([ModelReply(text="", tool_calls=calls)]), tools)
    assert ended.reason is EndReason.SUBMITTED
    assert [event.call_id for event in answers(events)] == ["a", "b", "s"]
    submitted = next(event for event in events if isinstance(event, Submitted))
    assert submitted.candidate == Candidate("two").id


def test_second_submit_is_answered_without_being_carried_out(tmp_path: Path) -> None:
    calls = (compile_call("one", "a"), tool_call("submit", "s"), tool_call("submit", "t"))
    tools = ScriptedTools()
    _, events = roll_out(tmp_path, ScriptedModel([ModelReply(text="", tool_calls=calls)]), tools)
    assert [(event.call_id, event.executed) for event in answers(events)] == [("a", True), ("s", True), ("t", False)]
    assert [name for name, _ in tools.calls] == ["compile_kernel", "submit"]


def test_conversation_that_cannot_be_shortened_ends_the_rollout(tmp_path: Path) -> None:
    ended, _ = roll_out(tmp_path, ScriptedModel([ContextOverflowError("too long")]), ScriptedTools())
    assert ended.reason is EndReason.CONTEXT_OVERFLOW


def test_budget_event_says_what_is_left(tmp_path: Path) -> None:
    reply = COMPILE.model_copy(update={"usage": Usage(input_tokens=90, output_tokens=10)})
    _, events = roll_out(tmp_path, ScriptedModel([reply, SUBMIT]), ScriptedTools(), Limits(turns=7, tokens=1000))
    spent = next(event for event in events if isinstance(event, BudgetSpent))
    assert (spent.left.turns, spent.left.tokens, spent.left.seconds, spent.left.dollars) == (6, 900, None, None)
    assert (spent.spent.turns, spent.spent.tokens, spent.spent.dollars) == (1, 100, None)


def test_every_event_is_watched_after_it_is_written(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = tmp_path / "rollout-1" / "transcript.jsonl"
    roll_out(
        tmp_path,
        ScriptedModel([COMPILE, SUBMIT]),
        ScriptedTools(),
        watch=lambda event: seen.append((event.sequence, len(path.read_bytes().splitlines()))),
    )
    assert seen == [(number, number + 1) for number in range(9)]


def test_no_call_is_made_once_the_device_has_no_time_left_and_it_stays_open(tmp_path: Path) -> None:
    calls = (compile_call("code", "a"), tool_call("benchmark", "b"), tool_call("benchmark", "c"))
    tools = ScriptedTools(speedups={"code": 2.0})
    ended, events = roll_out(
        tmp_path, ScriptedModel([ModelReply(text="", tool_calls=calls)]), tools, Limits(gpu_seconds=0.5)
    )
    assert (ended.reason, ended.culprit) == (EndReason.GPU_LIMIT, Culprit.BUDGET)
    assert [event.call_id for event in answers(events)] == ["a", "b"]
    spent = next(event for event in events if isinstance(event, BudgetSpent))
    assert (spent.spent.gpu_seconds, spent.left.gpu_seconds) == (0.5, 0.0)
    again = ScriptedTools(speedups={"code": 2.0})
    ended, events = resume(tmp_path, ScriptedModel([SUBMIT]), again, Limits(gpu_seconds=9.0))
    assert ended.reason is EndReason.SUBMITTED
    assert [event.call_id for event in answers(events)] == ["a", "b", "c", "call"]
    assert summarize(events).spent is not None


def test_told_to_stop_it_asks_for_nothing_more(tmp_path: Path) -> None:
    stopping = threading.Event()
    model = ScriptedModel([COMPILE] * 3)

    def watch(event: Event) -> None:
        if isinstance(event, ModelReplied) and event.turn == 2:
            stopping.set()

    tools = ScriptedTools()
    ended, _ = roll_out(tmp_path, model, tools, watch=watch, stopping=stopping)
    assert (ended.reason, ended.turn, ended.culprit) == (EndReason.INTERRUPTED, 2, Culprit.PERSON)
    assert len(model.asked) == 2
    assert len(tools.calls) == 1
    assert model.patience[0].stopping is stopping


def test_reasoning_that_must_go_back_is_in_the_log_and_goes_back(tmp_path: Path) -> None:
    reply = COMPILE.model_copy(update={"reasoning_fields": {"reasoning_content": "hm"}})
    model = ScriptedModel([reply, SUBMIT])
    _, events = roll_out(tmp_path, model, ScriptedTools())
    first = next(event for event in events if isinstance(event, ModelReplied))
    assert first.reasoning_fields == {"reasoning_content": "hm"}
    assistant = model.asked[1][2]
    assert isinstance(assistant, AssistantMessage) and assistant.reasoning == {"reasoning_content": "hm"}


def test_nudges_are_in_the_log(tmp_path: Path) -> None:
    model = ScriptedModel([SILENT, COMPILE, SUBMIT])
    _, events = roll_out(tmp_path, model, ScriptedTools())
    (nudge,) = (event for event in events if isinstance(event, Nudged))
    assert nudge.turn == 1
    assert model.asked[1][-1] == UserMessage(text=nudge.text)
