"""A rollout as ATIF: valid by the schema, and read back as the same conversation."""

import json
from pathlib import Path

import pytest
from atif_schema import Trajectory
from foreign_files import ATIF, CHAT, SEED, command, imported
from sample_transcripts import BEGAN, BROKEN, GOOD, config, events, write_run

from runs.events import Event, ModelReplied, Nudged, RolloutStarted, ToolCall, ToolReturned, Usage
from runs.exporting.atif import trajectory_text
from runs.find import list_runs
from runs.places import RECORDED
from runs.store import RunDirectory
from tasks.errors import UsageError


def trajectory(run_events: list[Event] | None = None) -> Trajectory:
    return Trajectory.model_validate_json(trajectory_text(config(), run_events or events()))


def changed(**reply: object) -> list[Event]:
    """The sample transcript with another first reply."""
    return [
        event.model_copy(update=reply) if isinstance(event, ModelReplied) and event.turn == 1 else event
        for event in events()
    ]


def test_steps_hold_messages_calls_and_results() -> None:
    steps = trajectory().steps
    assert [(step.source, step.message) for step in steps] == [
        ("system", "You write kernels."),
        ("user", "Begin."),
        ("agent", "Let me try."),
        ("agent", "Repaired."),
    ]
    assert [step.timestamp for step in steps] == ["2026-03-01T12:00:00Z"] * 4
    assert [step.reasoning_content for step in steps] == [None, None, "I think of shared memory.", None]
    first, second = steps[2:]
    assert first.tool_calls is not None and second.tool_calls is not None
    assert [(c.tool_call_id, c.function_name) for c in first.tool_calls] == [("a", "compile_kernel")]
    assert first.tool_calls[0].arguments == {"kernel_code": BROKEN.text}
    assert [(c.tool_call_id, c.function_name) for c in second.tool_calls] == [("b", "compile_kernel"), ("c", "submit")]
    assert second.observation is not None
    assert [(r.source_call_id, r.content) for r in second.observation.results] == [
        ("b", "the tool said built"),
        ("c", "the tool said evaluated"),
    ]
    assert second.observation.results[1].extra == {
        "candidate": GOOD.id,
        "verdict": "correct",
        "median_ns": 2000.0,
        "speedup": 2.0,
        "seconds": 3.0,
    }


def test_root_says_who_made_it_and_what_it_was_worth() -> None:
    made = trajectory()
    assert (made.session_id, made.trajectory_id) == (config().id, f"{config().id}/rollout-1")
    assert (made.agent.name, made.agent.model_name) == ("kernelwright", "test-model")
    assert made.agent.tool_definitions == [{"type": "function", "function": {"name": "submit"}}]
    assert made.extra is not None
    assert (made.extra["task"], made.extra["ended"]) == ("causal_conv", "submitted: correct")
    assert made.extra["reward"] == {
        "of": "submitted",
        "verdict": "correct",
        "speedup": 2.0,
        "speedup_interval": {"low": 1.9, "high": 2.1},
    }


def test_prompt_tokens_include_the_cached_ones() -> None:
    usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, reasoning_tokens=5)
    metrics = trajectory(changed(usage=usage, cost_usd=0.25)).steps[2].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (100, 20, 60)
    assert (metrics.cost_usd, metrics.extra) == (0.25, {"reasoning_tokens": 5})
    totals = trajectory(changed(usage=usage)).final_metrics
    assert totals is not None
    assert (totals.total_prompt_tokens, totals.total_completion_tokens, totals.total_steps) == (200, 40, 4)
    assert totals.total_cost_usd is None


def test_what_nobody_counted_is_left_out() -> None:
    assert trajectory(changed(usage=Usage())).steps[2].metrics is None
    assert trajectory(changed(usage=None)).steps[2].metrics is None


def test_what_the_harness_said_is_a_step_of_the_user() -> None:
    steps = trajectory([*events()[:3], Nudged(turn=1, text="Call a tool.", time=BEGAN), *events()[3:]]).steps
    assert [(step.source, step.message) for step in steps[2:]] == [
        ("agent", "Let me try."),
        ("user", "Call a tool."),
        ("agent", "Repaired."),
    ]


def test_copied_history_is_marked_and_not_counted() -> None:
    made = trajectory([event.model_copy(update={"copied": event.turn == 1}) for event in events()])
    assert [step.is_copied_context for step in made.steps] == [None, None, True, None]
    assert made.final_metrics is not None
    assert made.final_metrics.total_prompt_tokens == 100


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "", '"text"', '{"a": NaN}', '{"a": 1e999}', "[" * 100_000])
def test_arguments_that_are_no_object_are_kept_as_text(tmp_path: Path, arguments: str) -> None:
    calls = (ToolCall(id="a", name="compile_kernel", arguments=arguments),)
    text = trajectory_text(config(), changed(tool_calls=calls))
    written = Trajectory.model_validate_json(text).steps[2].tool_calls
    assert written is not None
    assert (written[0].arguments, written[0].extra) == ({}, {"arguments_text": arguments})
    reply = imported(tmp_path, text).events("rollout-1")[1]
    assert isinstance(reply, ModelReplied)
    assert reply.tool_calls == calls


def test_nulls_that_the_model_wrote_stay(tmp_path: Path) -> None:
    calls = (ToolCall(id="a", name="verify", arguments='{"candidate": null}'),)
    text = trajectory_text(config(), changed(tool_calls=calls))
    assert conversation(imported(tmp_path, text))[2][2] == [("a", "verify", {"candidate": None})]


def conversation(run: RunDirectory, rollout: str = "rollout-1") -> list[tuple[object, ...]]:
    """What was said in a rollout, with arguments compared as values."""
    said: list[tuple[object, ...]] = []
    for event in run.events(rollout):
        match event:
            case RolloutStarted():
                said += [("system", event.system_prompt), ("user", event.opening, event.tools, event.model)]
            case ModelReplied():
                calls = [(call.id, call.name, _value(call.arguments)) for call in event.tool_calls]
                said.append((event.text, event.reasoning, calls))
            case ToolReturned():
                said.append((event.turn, event.call_id, event.tool, event.reply.text))
            case _:
                pass
    return said


def _value(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def candidates(run: RunDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.candidates.iterdir()}


@pytest.mark.parametrize("form", ["atif", "chat"])
@pytest.mark.parametrize("run", [run.path for run in list_runs(RECORDED)], ids=lambda path: path.name)
def test_recorded_runs_come_back_the_same(tmp_path: Path, run: Path, form: str) -> None:
    recorded = RunDirectory(run)
    for rollout in recorded.rollouts():
        file = tmp_path / f"{rollout}.json"
        done = command("export", run / rollout, "--to", form, "--out", file)
        assert done.exit_code == 0, done.exception
        if form == "atif":
            Trajectory.model_validate_json(file.read_bytes())
        root = tmp_path / rollout
        root.mkdir()
        again = imported(root, file.read_bytes())
        assert conversation(again) == conversation(recorded, rollout)
        assert candidates(again) == candidates(recorded)
        assert again.config().task == recorded.config().task


@pytest.mark.parametrize("content", [SEED, json.dumps(CHAT), json.dumps(ATIF)])
@pytest.mark.parametrize("form", ["atif", "chat"])
def test_imported_runs_are_exported_too(tmp_path: Path, content: str, form: str) -> None:
    first = imported(tmp_path, content)
    file = tmp_path / "again.json"
    assert command("export", first.path, "--to", form, "--out", file).exit_code == 0
    if form == "atif":
        Trajectory.model_validate_json(file.read_bytes())
    (tmp_path / "second").mkdir()
    second = imported(tmp_path / "second", file.read_bytes())
    assert conversation(second) == conversation(first)
    assert candidates(second) == candidates(first)


def test_a_run_of_several_rollouts_is_no_one_trajectory(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (run.path / "rollout-2").mkdir()
    (run.path / "rollout-2" / "transcript.jsonl").write_bytes(run.transcript("rollout-1").read_bytes())
    done = command("export", run.path, "--to", "atif")
    assert isinstance(done.exception, UsageError)
    assert f"{run.path / 'rollout-2'}" in str(done.exception)
    assert command("export", run.path / "rollout-2", "--to", "atif").exit_code == 0
