"""Tests of `fork`: a new run goes on from a turn of another, with what was said there and without its costs."""

import re
from pathlib import Path

import pytest
import typer
from scripted import ScriptedModel, ScriptedTools, compile_call
from scripted import call as tool_call
from test_run_command import ScriptedJudge
from typer.testing import CliRunner, Result

from agent import commands, fork_command, resume_command, running
from agent.choice import Choice
from agent.model import AssistantMessage, ModelReply
from runs.commands import register as register_show
from runs.config import ForkedFrom, ModelOptions, Prices
from runs.events import Compacted, EndReason, RolloutStarted, Submitted, Usage
from runs.find import list_runs
from runs.store import RunDirectory
from runs.summary import summarize
from tasks.errors import RunFormatError, UsageError
from tools.candidate import Candidate

USAGE = Usage(input_tokens=1000, output_tokens=100)
PRICES = Prices(input=1.0, cached_input=0.1, output=10.0, as_of="2026-01-01")
FIRST = ModelReply(
    text="One.",
    tool_calls=(compile_call("one", "a"), tool_call("benchmark", "b")),
    reasoning_fields={"r": 1},
    usage=USAGE,
)
SECOND = ModelReply(text="Two.", tool_calls=(compile_call("two", "c"),), usage=USAGE)
SILENT = ModelReply(text="Well.", usage=USAGE)
SUBMIT = ModelReply(text="Done.", tool_calls=(tool_call("submit"),), usage=USAGE)


@pytest.fixture(autouse=True)
def scripted_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.judge.Judge", ScriptedJudge)
    monkeypatch.setattr("tools.toolbox.Toolbox", lambda _: ScriptedTools(speedups={"one": 2.0, "two": 1.5}))


def invoke(monkeypatch: pytest.MonkeyPatch, model: ScriptedModel, name: str, *arguments: str) -> Result:
    choice = Choice(name=name, make_client=lambda: model, prices=PRICES)
    monkeypatch.setattr(running, "choose", lambda *_, **__: choice)
    monkeypatch.setattr(fork_command, "choose", lambda *_, **__: choice)
    app = typer.Typer()
    commands.register(app)
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run of four turns: one candidate, nothing, another candidate, the submission."""
    model = ScriptedModel([FIRST, SILENT, SECOND, SUBMIT])
    result = invoke(
        monkeypatch, model, "first", "run", "causal_conv", "--target", "cpu", "--out", str(tmp_path / "source")
    )
    assert result.exit_code == 0, result.output
    return list_runs(tmp_path / "source")[0]


def fork(
    monkeypatch: pytest.MonkeyPatch, source: RunDirectory, model: ScriptedModel, at: int, *options: str
) -> tuple[Result, RunDirectory | None]:
    out = source.path.parents[2] / "forks"
    result = invoke(
        monkeypatch,
        model,
        "second",
        "fork",
        str(source.path),
        "--at",
        str(at),
        "--model",
        "x",
        "--out",
        str(out),
        *options,
    )
    runs = list_runs(out)
    return result, runs[0] if runs else None


def test_fork_goes_on_with_what_was_said_up_to_its_turn(source: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source.transcript("rollout-1").read_bytes()
    model = ScriptedModel([SUBMIT])
    result, run = fork(monkeypatch, source, model, 2, "--turns", "7")
    assert result.exit_code == 0, result.output
    assert run is not None
    assert source.transcript("rollout-1").read_bytes() == before
    events = run.events("rollout-1")
    assert [(event.event, event.turn, event.copied) for event in events] == [
        ("rollout_started", 0, False),
        ("model_reply", 1, True),
        ("tool_result", 1, True),
        ("tool_result", 1, True),
        ("model_reply", 2, True),
        ("nudge", 2, True),
        ("resumed", 2, False),
        ("budget", 2, False),
        ("model_reply", 3, False),
        ("tool_result", 3, False),
        ("submitted", 3, False),
        ("budget", 3, False),
        ("ended", 3, False),
    ]
    assert [event.sequence for event in events] == list(range(len(events)))
    roles = [message.role for message in model.asked[0]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    submitted = next(event for event in events if isinstance(event, Submitted))
    # The last one compiled up to turn 2, which the new tools have never built.
    assert submitted.candidate == Candidate("one").id
    assert run.candidate_text(Candidate("one").id) == "one"
    assert not (run.candidates / f"{Candidate('two').id}.py").exists()


def test_fork_says_where_it_comes_from_and_is_asked_of_the_new_model(
    source: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run = fork(monkeypatch, source, ScriptedModel([SUBMIT]), 1, "--turns", "7", "--tokens", "5000")
    assert run is not None
    config = run.config()
    name = f"causal_conv/{source.id}"
    assert config.forked_from == ForkedFrom(run=name, rollout="rollout-1", turn=1)
    assert (config.model, config.limits.turns, config.budget.tokens, config.rollouts) == ("second", 7, 5000, 1)
    assert config.provenance == f"Made by `kernelwright fork`: second goes on from turn 1 of {name}/rollout-1."
    started = run.events("rollout-1")[0]
    assert isinstance(started, RolloutStarted) and (started.model, started.limits.turns) == ("second", 7)
    app = typer.Typer()
    register_show(app)
    shown = CliRunner().invoke(app, ["show", str(run.path)]).output
    assert f"turns 1 to 1 are copied from {name}/rollout-1" in shown
    assert "turn 1 (copied)" in shown and "turn 2:" in shown
    assert "2 turns (1 copied)" in shown


def test_what_was_copied_is_not_paid_for_again(source: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = fork(monkeypatch, source, ScriptedModel([SECOND, SUBMIT]), 2, "--turns", "2")
    assert run is not None
    summary = summarize(run.events("rollout-1"))
    assert summary.reason is EndReason.SUBMITTED
    assert summary.spent is not None
    assert (summary.spent.turns, summary.spent.input_tokens) == (2, 2000)
    # By hand: 2 x (1,000 x 1.00 + 100 x 10.00) dollars for a million.
    assert summary.spent.dollars == pytest.approx(0.004)
    assert summary.spent.gpu_seconds == 0
    assert summary.best is not None and summary.best.candidate == Candidate("one").id


def test_fork_at_the_beginning_takes_nothing_over(source: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel([SECOND, SUBMIT])
    result, run = fork(monkeypatch, source, model, 0)
    assert result.exit_code == 0, result.output
    assert run is not None
    assert len(model.asked[0]) == 2
    assert not any(event.copied for event in run.events("rollout-1"))


def test_reasoning_that_must_go_back_is_copied(source: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel([SUBMIT])
    fork(monkeypatch, source, model, 1)
    (assistant,) = (message for message in model.asked[0] if isinstance(message, AssistantMessage))
    assert assistant.reasoning == {"r": 1}


@pytest.mark.parametrize(
    ("at", "told"), [(9, r"has 4 turns.*--at 0 to 4"), (4, r"turn 4 .* handed in .*--at 3 or less")]
)
def test_turn_that_cannot_be_forked_is_told_and_leaves_nothing(
    source: RunDirectory, monkeypatch: pytest.MonkeyPatch, at: int, told: str
) -> None:
    result, run = fork(monkeypatch, source, ScriptedModel([]), at)
    assert isinstance(result.exception, UsageError)
    assert re.search(told, str(result.exception))
    assert run is None


def test_fork_of_a_run_that_lost_a_candidate_leaves_nothing(
    source: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source.candidates / f"{Candidate('one').id}.py").unlink()
    result, run = fork(monkeypatch, source, ScriptedModel([]), 2)
    assert isinstance(result.exception, RunFormatError) and "Restore the file" in str(result.exception)
    assert run is None


def test_resuming_what_is_over_says_so(source: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        resume_command, "choose", lambda *_, **__: Choice(name="first", make_client=lambda: ScriptedModel([]))
    )
    app = typer.Typer()
    commands.register(app)
    result = CliRunner().invoke(app, ["resume", str(source.path)])
    assert result.exit_code == 0, result.output
    assert "nothing was left to do: every rollout is over" in result.output


def test_resuming_a_damaged_run_is_told_before_anything_is_measured(
    source: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.judge.Judge", None)
    path = source.transcript("rollout-1")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], '{"event": "alien"}\n', *lines[3:]]))
    app = typer.Typer()
    commands.register(app)
    result = CliRunner().invoke(app, ["resume", str(source.path)])
    assert isinstance(result.exception, RunFormatError) and "Line 3 of" in str(result.exception)


def test_fork_of_a_run_of_several_rollouts_wants_one_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel([FIRST, SUBMIT] * 3)
    arguments = ("run", "causal_conv", "--target", "cpu", "--out", str(tmp_path / "source"), "--rollouts", "2")
    invoke(monkeypatch, model, "first", *arguments)
    (run,) = list_runs(tmp_path / "source")
    result, _ = fork(monkeypatch, run, ScriptedModel([]), 1)
    assert isinstance(result.exception, UsageError) and "rollout-2" in str(result.exception)
    out = str(tmp_path / "forks")
    arguments = ("fork", str(run.path / "rollout-2"), "--at", "1", "--model", "x", "--out", out)
    result = invoke(monkeypatch, ScriptedModel([SUBMIT]), "second", *arguments)
    assert result.exit_code == 0, result.output
    source = list_runs(tmp_path / "forks")[0].config().forked_from
    assert source is not None and source.rollout == "rollout-2"


def test_context_of_the_models_options_reaches_the_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [
        ModelReply(text="", tool_calls=(compile_call(f"# {number}\n" + "x = 1.0;\n" * 1000, "a"),))
        for number in range(9)
    ]
    choice = Choice(
        name="m", make_client=lambda: ScriptedModel([*long, SUBMIT]), options=ModelOptions(context_tokens=20_000)
    )
    monkeypatch.setattr(running, "choose", lambda *_, **__: choice)
    app = typer.Typer()
    commands.register(app)
    arguments = ["run", "causal_conv", "--target", "cpu", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    (run,) = list_runs(tmp_path)
    assert any(isinstance(event, Compacted) for event in run.events("rollout-1"))
