"""Tests of the command `run`, with tools that follow a script."""

import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import typer
from scripted import ScriptedModel, ScriptedTools, briefing, compile_call
from scripted import call as tool_call
from typer.testing import CliRunner, Result

from agent import commands, running
from agent.choice import Choice
from agent.model import ModelReply
from runs.apis import Api, ReasoningEcho
from runs.config import ModelOptions
from runs.find import list_runs
from tasks.errors import ModelServerError, UsageError
from tasks.loader import Task
from tasks.spec import Target
from tools.briefing import Briefing

COMPILE = ModelReply(text="A first version.", reasoning="Simple.", tool_calls=(compile_call("code"),))
SUBMIT = ModelReply(text="Good enough.", tool_calls=(tool_call("submit"),))


class ScriptedJudge:
    """A judge that knows its briefing and nothing else."""

    def __init__(self, task: Task, target: Target, progress: Callable[[str], None]) -> None:
        self._briefing = briefing(target)
        assert task.name == "causal_conv"
        progress("timing the baseline: eager")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def briefing(self) -> Briefing:
        return self._briefing


@pytest.fixture(autouse=True)
def scripted_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.judge.Judge", ScriptedJudge)
    monkeypatch.setattr("tools.toolbox.Toolbox", lambda _: ScriptedTools())


def invoke(
    monkeypatch: pytest.MonkeyPatch, script: list[ModelReply | BaseException], *arguments: str, default: bool = False
) -> Result:
    choice = Choice(name="scripted", make_client=lambda: ScriptedModel(script), by_default=default)
    monkeypatch.setattr(running, "choose", lambda *_, **__: choice)
    app = typer.Typer()
    commands.register(app)
    return CliRunner().invoke(app, ["run", "causal_conv", "--target", "cpu", *arguments])


def test_run_tells_each_turn_and_ends_with_the_table_and_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = invoke(monkeypatch, [COMPILE, SUBMIT], "--out", str(tmp_path), "--note", "made in a test", default=True)
    assert result.exit_code == 0, result.output
    (run,) = list_runs(tmp_path)
    expected = (
        "No key is set",
        "causal_conv on cpu, scripted",
        "timing the baseline: eager",
        "turn 1  A first version.",
        "turn 1  compile_kernel",
        "turn 2  Good enough.",
        "turn 2  submit",
        "ended: submitted",
        "verdict",
        "compile_kernel",
        f"transcript: {run.transcript('rollout-1')}",
    )
    position = 0
    for text in expected:
        position = result.output.index(text, position)
    assert "\x1b" not in result.output
    config = run.config()
    assert (config.task, config.target, config.model) == ("causal_conv", Target.CPU, "scripted")
    assert config.provenance == "made in a test"
    assert config.machine == briefing().machine
    assert config.limits.turns == 30


def test_model_was_told_what_the_transcript_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke(monkeypatch, [COMPILE, SUBMIT], "--out", str(tmp_path))
    (run,) = list_runs(tmp_path)
    first = json.loads(run.transcript("rollout-1").read_text().splitlines()[0])
    assert "The time to beat is 7500 us" in first["system_prompt"]
    names = [tool["function"]["name"] for tool in first["tools"]]
    assert names == ["compile_kernel", "submit", "read_guide", "diff_best"]


def test_options_of_the_model_reach_its_choice_and_only_those_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ModelOptions(api=Api.RESPONSES, stream=True, reasoning=ReasoningEcho.EXCLUDE, effort="low")
    given: list[ModelOptions] = []
    choice = Choice(name="scripted", make_client=lambda: ScriptedModel([COMPILE, SUBMIT]), options=options)

    def choose(*_: object, asked: ModelOptions) -> Choice:
        given.append(asked)
        return choice

    monkeypatch.setattr(running, "choose", choose)
    app = typer.Typer()
    commands.register(app)
    words = ["--api", "responses", "--stream", "--reasoning-effort", "low", "--reasoning-echo", "exclude"]
    assert (
        CliRunner().invoke(app, ["run", "causal_conv", *words, "--target", "cpu", "--out", str(tmp_path)]).exit_code
        == 0
    )
    assert given == [options]
    assert given[0].model_fields_set == {"api", "stream", "effort", "reasoning"}
    (run,) = list_runs(tmp_path)
    assert run.config().model_options == options


def test_rollouts_follow_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(monkeypatch, [COMPILE, SUBMIT], "--out", str(tmp_path), "--rollouts", "3")
    assert result.exit_code == 0, result.output
    (run,) = list_runs(tmp_path)
    assert run.rollouts() == ("rollout-1", "rollout-2", "rollout-3")


def test_interrupt_ends_the_run_with_a_complete_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(monkeypatch, [COMPILE, KeyboardInterrupt()], "--out", str(tmp_path), "--rollouts", "3")
    assert result.exit_code == 130, result.output
    (run,) = list_runs(tmp_path)
    assert run.rollouts() == ("rollout-1",)
    last = json.loads(run.transcript("rollout-1").read_text().splitlines()[-1])
    assert (last["event"], last["reason"]) == ("ended", "interrupted")


def test_server_that_fails_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(monkeypatch, [ModelServerError("gone")], "--out", str(tmp_path))
    assert result.exit_code == 3
    assert "gone" in result.output


def test_unwritable_directory_is_told_before_anything_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    result = invoke(monkeypatch, [], "--out", str(tmp_path / "file"))
    assert isinstance(result.exception, UsageError)


def test_unknown_task_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()
    commands.register(app)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run", "no_such_task"])
    assert isinstance(result.exception, UsageError)
    assert "no_such_task" in str(result.exception)
