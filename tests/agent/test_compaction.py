"""Tests of how conversations are kept within the model's context."""

from pathlib import Path

import pytest
from scripted import ScriptedModel, ScriptedTools, beginning, call, compile_call, resume, roll_out, timed

from agent.compaction import before_overflow
from agent.model import AssistantMessage, ContextOverflowError, Message, ModelReply, ToolMessage
from agent.state import RolloutState
from agent.window import LEAST_RATIO, MOST_RATIO, Window, size_of
from runs.config import Limits
from runs.events import Compacted, EndReason, Event, ModelReplied, ToolCall, ToolReturned, Usage
from tools.candidate import Candidate
from tools.results import ToolReply

LINES = "x = 1.0;\n"


def code(name: str) -> str:
    """A candidate of 1,000 lines and about 9,000 bytes."""
    return f"# {name}\n" + LINES * 1000


def attempt(name: str, speedups: dict[str, float], speedup: float = 1.0) -> ModelReply:
    speedups[code(name)] = speedup
    return ModelReply(text=f"Idea {name}.", tool_calls=(compile_call(code(name), "a"), call("benchmark", "b")))


def compactions(events: tuple[Event, ...]) -> list[Compacted]:
    return [event for event in events if isinstance(event, Compacted)]


def roles(messages: tuple[Message, ...]) -> list[str]:
    return [message.role for message in messages]


def test_arguments_and_reasoning_count() -> None:
    calls = (ToolCall(id="a", name="submit", arguments="x" * 5000),)
    message = AssistantMessage(text="é", tool_calls=calls, reasoning={"reasoning": "y" * 300})
    # By hand: é is 2 bytes in UTF-8, the name 6, and JSON adds 18 to the reasoning: {"reasoning": ""}.
    assert size_of([message, ToolMessage(call_id="a", text="z" * 7)]) == 2 + 6 + 5000 + 300 + 17 + 7


def test_estimates_follow_what_the_server_counts_within_reason() -> None:
    window = Window(1000)
    assert window.tokens(3000) == 1000
    window.calibrate(4000, 1000)
    assert window.tokens(4000) == 1000
    window.calibrate(4000, 0)
    assert window.tokens(4000) == 1000
    window.calibrate(10**6, 10)
    assert window.tokens(6000) == 6000 / MOST_RATIO
    window.calibrate(10, 10**6)
    assert window.tokens(6000) == 6000 / LEAST_RATIO


def test_oldest_turns_leave_before_the_context_is_full_and_what_matters_stays(tmp_path: Path) -> None:
    speedups: dict[str, float] = {}
    script = [attempt(str(number), speedups, speedup=3.0 if number == 1 else 1.0) for number in range(12)]
    model = ScriptedModel([*script, ModelReply(text="", tool_calls=(call("submit"),))])
    tools = ScriptedTools(speedups=speedups)
    ended, events = roll_out(tmp_path, model, tools, Limits(turns=20), context_tokens=20_000)
    assert ended.reason is EndReason.SUBMITTED
    first, *rest = compactions(events)
    assert rest
    assert first.limit_tokens is None
    assert first.tokens_before is not None and 15_000 < first.tokens_before < 20_000
    assert first.tokens_after is not None and first.tokens_after <= 10_000
    after = model.asked[first.turn - 1]
    assert roles(after[:3]) == ["system", "user", "assistant"]
    note = after[1].text
    assert note == f"Begin.\n\n{first.note}"
    assert code("1").strip() in note
    assert code("0").strip() not in note
    for number in range(first.turn - 1):
        assert f"`{Candidate(code(str(number))).id[:12]}`: correct" in note
        assert f"Idea {number}." in note
    assert all(Window().tokens(size_of(asked)) < 20_000 for asked in model.asked)


def test_what_the_server_refuses_is_made_shorter_and_the_limit_is_learnt(tmp_path: Path) -> None:
    speedups: dict[str, float] = {}
    script: list[ModelReply | BaseException] = [attempt(str(number), speedups) for number in range(4)]
    more = [attempt(str(number), speedups) for number in range(4, 8)]
    model = ScriptedModel([*script, ContextOverflowError("too long"), *more, KeyboardInterrupt()])
    _, events = roll_out(tmp_path, model, ScriptedTools(speedups=speedups), Limits(turns=20))
    first, *rest = compactions(events)
    assert (first.turn, first.turns_removed, first.turns_kept) == (5, 3, 1)
    # 4 x 10,000 bytes (in JSON, the end of a line takes two) and little else, at 3 bytes a token; nine tenths of that
    # are taken for the limit.
    assert first.tokens_before == pytest.approx(13_333, rel=0.02)
    assert first.limit_tokens == pytest.approx(12_000, rel=0.02)
    # From then on, room is made before the server refuses.
    assert rest and len(model.asked) == 10
    assert all(size_of(asked) / 3 < 12_000 for asked in model.asked[5:])


def test_last_turn_goes_too_if_it_alone_is_too_long(tmp_path: Path) -> None:
    speedups: dict[str, float] = {}
    model = ScriptedModel([attempt("0", speedups), ContextOverflowError("too long"), KeyboardInterrupt()])
    ended, events = roll_out(tmp_path, model, ScriptedTools(speedups=speedups))
    (compacted,) = compactions(events)
    assert (compacted.turns_removed, compacted.turns_kept) == (1, 0)
    assert roles(model.asked[-1]) == ["system", "user"]
    assert ended.reason is EndReason.INTERRUPTED


def test_conversation_that_can_get_no_shorter_ends_the_rollout(tmp_path: Path) -> None:
    overflow = ContextOverflowError("too long")
    model = ScriptedModel([ModelReply(text="", tool_calls=(call("dance"),)), overflow, overflow])
    ended, events = roll_out(tmp_path, model, ScriptedTools())
    assert (ended.reason, ended.message) == (EndReason.CONTEXT_OVERFLOW, "too long")
    assert len(compactions(events)) == 1


def test_calls_and_their_results_are_never_parted(tmp_path: Path) -> None:
    """A result without its call, or a call without its result, makes servers refuse every later request."""
    speedups: dict[str, float] = {}
    script: list[ModelReply | BaseException] = [attempt(str(number), speedups) for number in range(5)]
    model = ScriptedModel([*script, ContextOverflowError("too long"), KeyboardInterrupt()])
    roll_out(tmp_path, model, ScriptedTools(speedups=speedups), Limits(turns=20))
    for asked in model.asked:
        calls = [each.id for message in asked if isinstance(message, AssistantMessage) for each in message.tool_calls]
        assert [message.call_id for message in asked if isinstance(message, ToolMessage)] == calls


def test_resumed_conversation_is_the_compacted_one(tmp_path: Path) -> None:
    speedups: dict[str, float] = {}
    script: list[ModelReply | BaseException] = [attempt(str(number), speedups) for number in range(4)]
    model = ScriptedModel([*script, ContextOverflowError("too long"), attempt("4", speedups), KeyboardInterrupt()])
    roll_out(tmp_path, model, ScriptedTools(speedups=speedups), Limits(turns=20))
    again = ScriptedModel([ModelReply(text="", tool_calls=(call("submit"),))])
    ended, _ = resume(tmp_path, again, ScriptedTools(speedups=speedups), Limits(turns=20))
    assert ended.reason is EndReason.SUBMITTED
    assert again.asked[0] == model.asked[-1]


def test_list_of_attempts_is_shortened_where_the_context_is_small() -> None:
    state = RolloutState(beginning(Limits()), context_tokens=2000)
    for number in range(200):
        for event in tried(number):
            state.see(event)
    compacted = before_overflow(state, lambda candidate: f"text of {candidate}")
    assert compacted is not None
    # A quarter of 2,000 tokens has room for fewer than 20 lines of 80 bytes; 200 halved four times are 12.
    assert compacted.note.count("`: correct") == 12
    assert "188 earlier ones: 188 correct" in compacted.note
    assert f"turn 200, `{Candidate('199').id[:12]}`" in compacted.note


def tried(number: int) -> list[Event]:
    made = compile_call(str(number))
    reply = ToolReply(text="fine", result=timed(Candidate(str(number)).id, 1.0), candidate=Candidate(str(number)).id)
    return [
        ModelReplied(
            turn=number + 1,
            text="",
            reasoning="",
            tool_calls=(made,),
            usage=Usage(),
            finish_reason="tool_calls",
            raw={},
            seconds=1.0,
            cost_usd=None,
        ),
        ToolReturned(turn=number + 1, call_id=made.id, tool="compile_kernel", reply=reply, executed=True, seconds=1.0),
    ]


def test_context_named_anew_counts_when_a_rollout_goes_on_unless_the_server_said_otherwise() -> None:
    def compacted(limit_tokens: int | None, *, copied: bool = False) -> Compacted:
        return Compacted(turn=1, turns_removed=0, turns_kept=0, limit_tokens=limit_tokens, copied=copied)

    for event, expected in ((compacted(None), 9000), (compacted(5000), 5000), (compacted(5000, copied=True), 9000)):
        state = RolloutState(beginning(Limits()), context_tokens=9000)
        state.see(event)
        assert state.window.limit_tokens == expected
