"""Tests of noticing that a model is stuck."""

from pathlib import Path

from scripted import ScriptedModel, ScriptedTools, compile_call, roll_out
from scripted import call as tool_call

from agent.model import AssistantMessage, ModelReply, ToolMessage
from agent.stuck import END_AT, WARN_FROM
from runs.config import Limits
from runs.events import Culprit, EndReason, ToolCall, ToolReturned
from tools.results import ToolReply

SAME = ModelReply(text="again", tool_calls=(compile_call("same"),))


def replies(*calls: ToolCall) -> list[ModelReply | BaseException]:
    return [ModelReply(text="", tool_calls=(call,)) for call in calls]


def test_same_call_with_the_same_result_is_warned_of_then_ends_the_rollout(tmp_path: Path) -> None:
    model = ScriptedModel([SAME] * 50)
    ended, events = roll_out(tmp_path, model, ScriptedTools(), Limits(turns=50))
    assert (ended.reason, ended.culprit) == (EndReason.STUCK, Culprit.MODEL)
    texts = [event.reply.text for event in events if isinstance(event, ToolReturned)]
    assert len(texts) == END_AT + 1
    assert [text == "built" for text in texts[:WARN_FROM]] == [True] * WARN_FROM
    assert all(text.startswith("built\n\nYou have made this call before") for text in texts[WARN_FROM:-1])
    told = model.asked[-1][-1]
    assert isinstance(told, ToolMessage) and told.text == texts[-2]


def test_arguments_nested_without_end_are_the_models_mistake_and_end_nothing(tmp_path: Path) -> None:
    deep = replies(ToolCall(id="deep", name="compile_kernel", arguments="[" * 100_000))
    model = ScriptedModel([*deep, ModelReply(text="", tool_calls=(compile_call("a"),))])
    _, events = roll_out(tmp_path, model, ScriptedTools(), Limits(turns=2))
    assert [event.turn for event in events if isinstance(event, ToolReturned)] == [1, 2]
    sent = model.asked[-1][-2]
    assert isinstance(sent, AssistantMessage) and sent.tool_calls[0].arguments == "{}", "a server takes that back"


def test_going_round_in_circles_is_stuck_too(tmp_path: Path) -> None:
    circle = replies(compile_call("a"), compile_call("b")) * 20
    ended, _ = roll_out(tmp_path, ScriptedModel(circle), ScriptedTools(), Limits(turns=40))
    assert (ended.reason, ended.turn) == (EndReason.STUCK, 2 + END_AT)


def test_anything_new_starts_the_count_anew(tmp_path: Path) -> None:
    script = [reply for number in range(12) for reply in replies(compile_call("a"), compile_call(str(number)))]
    ended, events = roll_out(tmp_path, ScriptedModel(script), ScriptedTools(), Limits(turns=24))
    assert ended.reason is EndReason.TURN_LIMIT
    assert not any("made this call" in event.reply.text for event in events if isinstance(event, ToolReturned))


def test_order_and_space_of_arguments_make_no_new_call_and_another_result_does(tmp_path: Path) -> None:
    one = ToolCall(id="a", name="compile_kernel", arguments='{"kernel_code":"x","note":"y"}')
    other = ToolCall(id="a", name="compile_kernel", arguments='{"note": "y", "kernel_code": "x"}')
    script = replies(tool_call("submit"), tool_call("submit"), one, other, other)
    tools = ScriptedTools(speedups={"x": 2.0})
    _, events = roll_out(tmp_path, ScriptedModel(script), tools, Limits(turns=5))
    warned = ["made this call" in event.reply.text for event in events if isinstance(event, ToolReturned)]
    assert warned == [False, False, False, False, True]


def test_times_that_differ_are_the_same_result(tmp_path: Path) -> None:
    speedups = {"code": 1.0}

    class Noisy(ScriptedTools):
        """Measures another time at every call."""

        def call(self, name: str, arguments: str) -> ToolReply:
            speedups["code"] += 0.01
            return super().call(name, arguments)

    script = replies(compile_call("code"), *[tool_call("benchmark")] * 20)
    ended, _ = roll_out(tmp_path, ScriptedModel(script), Noisy(speedups=speedups), Limits(turns=30))
    assert (ended.reason, ended.turn) == (EndReason.STUCK, 2 + END_AT)
