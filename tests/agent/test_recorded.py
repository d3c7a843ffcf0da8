"""Tests of the `recorded` model: the same calls again, carried out for real."""

from pathlib import Path

import pytest
from scripted import MACHINE, ScriptedModel, ScriptedTools, compile_call, roll_out
from scripted import call as tool_call

from agent import recorded
from agent.budget import Budget
from agent.loop import Rollout
from agent.model import ModelReply
from agent.recorded import RecordedModel, find_recording
from runs.config import Limits, RunConfig
from runs.events import EndReason, Event, ModelReplied, RolloutStarted, ToolReturned, Usage
from runs.store import RunDirectory, create_run
from tasks.errors import UsageError
from tasks.spec import Target

SCRIPT = [
    ModelReply(text="first", reasoning="why first", tool_calls=(compile_call("one", "a"),)),
    ModelReply(text="nothing to call"),
    ModelReply(text="half", tool_calls=(compile_call("tw", "b"),), finish_reason="length"),
    ModelReply(text="third", tool_calls=(tool_call("submit", "s"), compile_call("two", "c"))),
]


def record(path: Path, script: list[ModelReply]) -> tuple[Event, ...]:
    return roll_out(path, ScriptedModel(list(script)), ScriptedTools())[1]


def play(path: Path, events: tuple[Event, ...]) -> tuple[EndReason, tuple[Event, ...], ScriptedTools]:
    tools = ScriptedTools()
    (path / "candidates").mkdir(parents=True)
    started = events[0]
    assert isinstance(started, RolloutStarted)
    model = RecordedModel(events)
    end = Rollout(RunDirectory(path), started, model, tools, Budget(Limits(turns=10), None), lambda _: None).run()
    return end.reason, RunDirectory(path).events("rollout-1"), tools


def test_same_calls_are_carried_out_again(tmp_path: Path) -> None:
    first = record(tmp_path / "first", SCRIPT)
    reason, second, tools = play(tmp_path / "second", first)
    assert reason is EndReason.SUBMITTED
    assert tools.calls == [
        ("compile_kernel", '{"kernel_code": "one"}'),
        ("compile_kernel", '{"kernel_code": "two"}'),
        ("submit", "{}"),
    ]
    for kind in (ModelReplied, ToolReturned):
        then = [event for event in first if isinstance(event, kind)]
        now = [event for event in second if isinstance(event, kind)]
        assert [event.turn for event in then] == [event.turn for event in now]
    replies = [event for event in second if isinstance(event, ModelReplied)]
    assert [(reply.text, reply.reasoning) for reply in replies] == [
        ("first", "why first"),
        ("nothing to call", ""),
        ("half", ""),
        ("third", ""),
    ]


def test_replies_of_a_recording_spend_no_tokens(tmp_path: Path) -> None:
    script = [reply.model_copy(update={"usage": Usage(input_tokens=10**6)}) for reply in SCRIPT]
    _, second, _ = play(tmp_path / "second", record(tmp_path / "first", script))
    assert all(event.usage == Usage() for event in second if isinstance(event, ModelReplied))


def test_recording_without_an_end_is_exhausted(tmp_path: Path) -> None:
    reason, _, _ = play(tmp_path / "second", record(tmp_path / "first", SCRIPT)[:3])
    assert reason is EndReason.RECORDING_EXHAUSTED


def ship(root: Path, run_id: str, target: Target, events: tuple[Event, ...]) -> None:
    run = create_run(
        root,
        RunConfig(
            id=run_id,
            created=events[0].time,
            task="causal_conv",
            task_argument="causal_conv",
            target=target,
            model="scripted",
            rollouts=1,
            limits=Limits(),
            versions={},
            machine=MACHINE,
            provenance="a test",
        ),
    )
    (run.path / "rollout-1").mkdir()
    run.transcript("rollout-1").write_text("".join(event.model_dump_json() + "\n" for event in events))


def test_newest_recording_of_the_task_and_target_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = record(tmp_path / "first", SCRIPT)
    monkeypatch.setattr(recorded, "RECORDED", tmp_path / "shipped")
    ship(tmp_path / "shipped", "20260101-000000-aaaaaa", Target.CPU, events)
    ship(tmp_path / "shipped", "20260201-000000-bbbbbb", Target.CPU, events)
    run, rollout = find_recording("causal_conv", Target.CPU)
    assert (run.id, rollout) == ("20260201-000000-bbbbbb", "rollout-1")


def test_missing_recording_says_which_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = record(tmp_path / "first", SCRIPT)
    monkeypatch.setattr(recorded, "RECORDED", tmp_path / "shipped")
    ship(tmp_path / "shipped", "20260101-000000-aaaaaa", Target.CPU, events)
    with pytest.raises(UsageError, match=r"for cuda .* there is one for cpu\. Add --target cpu"):
        find_recording("causal_conv", Target.CUDA)
    with pytest.raises(UsageError, match=r"conv_groupnorm .* some of: causal_conv"):
        find_recording("conv_groupnorm", Target.CPU)
