"""Tests of the command `tool`, with tools that follow a script."""

import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import typer
from scripted import ScriptedTools, briefing, compile_call, timed
from typer.testing import CliRunner, Result

from agent import commands
from agent.by_hand import exit_code
from runs.config import Driver
from runs.events import Ended, EndReason, Event, ModelReplied, Resumed, ToolReturned, Usage
from runs.find import list_runs
from runs.log import TranscriptLog
from runs.places import RECORDED
from runs.store import RunDirectory
from tasks.errors import UsageError
from tasks.loader import Task, find_task
from tasks.spec import Target
from tools.briefing import Briefing
from tools.candidate import Candidate
from tools.results import Built, Evaluation, Fault, Refused, ToolResult
from tools.verdict import Verdict

CODE = "class ModelNew: ..."
OTHER = "class ModelNew: pass"
SPEEDUPS = {CODE: 2.0, OTHER: 3.0}
ID = Candidate(CODE).id


class ScriptedJudge:
    """A judge that knows its briefing, untimed, and nothing else."""

    def __init__(self, task: Task, target: Target) -> None:
        assert (task.name, target) == ("causal_conv", Target.CPU)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def briefing(self, *, timed: bool) -> Briefing:
        assert not timed
        return briefing()


Use = Callable[..., Result]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Use:
    """Runs `tool` on the run in `tmp_path / "run"`; `tools` are those of this call, and the last ones stay."""
    monkeypatch.setattr("tools.judge.Judge", ScriptedJudge)
    (tmp_path / "one.py").write_text(CODE)
    (tmp_path / "other.py").write_text(OTHER)
    app = typer.Typer()
    commands.register(app)

    def call(*arguments: str, tools: ScriptedTools | None = None) -> Result:
        monkeypatch.setattr("tools.toolbox.Toolbox", lambda _: tools or ScriptedTools(speedups=SPEEDUPS))
        words = [str(tmp_path / word) if word in ("one.py", "other.py") else word for word in arguments]
        return CliRunner().invoke(app, ["tool", *words, "--run", str(tmp_path / "run"), "--target", "cpu"])

    return call


def events_in(folder: Path) -> tuple[Event, ...]:
    return RunDirectory(folder / "run").events("rollout-1")


def tools_of(events: tuple[Event, ...]) -> list[str]:
    return [event.tool for event in events if isinstance(event, ToolReturned)]


def test_each_call_is_the_next_turn_of_a_run_that_is_made_on_first_use(use: Use, tmp_path: Path) -> None:
    first = use("compile_kernel", "one.py", "--task", "causal_conv")
    assert (first.exit_code, first.stdout) == (0, "built\n")
    second = use("benchmark")
    assert (second.exit_code, second.stdout) == (0, "2.0x\n")
    assert not any(isinstance(event, Ended) for event in events_in(tmp_path))
    last = use("submit")
    assert (last.exit_code, last.stdout) == (0, "evaluated\n")

    events = events_in(tmp_path)
    replies = [event for event in events if isinstance(event, ModelReplied)]
    assert [(reply.turn, reply.tool_calls[0].name) for reply in replies] == [
        (1, "compile_kernel"),
        (2, "benchmark"),
        (3, "submit"),
    ]
    assert json.loads(replies[0].tool_calls[0].arguments) == {"kernel_code": CODE}
    assert sum(isinstance(event, Resumed) for event in events) == 2
    ended = events[-1]
    assert isinstance(ended, Ended) and ended.reason is EndReason.SUBMITTED
    run = RunDirectory(tmp_path / "run")
    assert run.candidate_text(ID) == CODE
    assert (run.config().driver, run.config().model, run.config().id) == (Driver.SHELL, "by hand", "run")


def test_a_file_that_is_new_to_the_run_is_compiled_first_and_only_then(use: Use, tmp_path: Path) -> None:
    assert use("benchmark", "one.py", "--task", "causal_conv").stdout == "built\n2.0x\n"
    assert use("benchmark", "other.py").stdout == "built\n3.0x\n"
    assert tools_of(events_in(tmp_path)) == ["compile_kernel", "benchmark"] * 2
    use("benchmark", "one.py")
    replies = [event for event in events_in(tmp_path) if isinstance(event, ModelReplied)]
    assert [call.name for call in replies[-1].tool_calls] == ["benchmark"]
    assert json.loads(replies[-1].tool_calls[0].arguments) == {"candidate": ID}


def test_what_does_not_compile_is_not_timed(use: Use, tmp_path: Path) -> None:
    class NothingCompiles(ScriptedTools):
        def call(self, name: str, arguments: str):  # type: ignore[no-untyped-def]
            fault = Fault(stage="build", verdict=Verdict.BUILD_FAILED, message="no semicolon", candidate=ID)
            return super().call(name, arguments).model_copy(update={"text": "no semicolon", "result": fault})

    result = use("benchmark", "one.py", "--task", "causal_conv", tools=NothingCompiles())
    assert (result.exit_code, result.stdout) == (1, "no semicolon\n")
    assert tools_of(events_in(tmp_path)) == ["compile_kernel"]


def test_a_refused_call_exits_with_2_and_is_written_down(use: Use, tmp_path: Path) -> None:
    result = use("benchmark", "--task", "causal_conv")
    assert (result.exit_code, result.stdout) == (2, "cannot benchmark\n")
    assert tools_of(events_in(tmp_path)) == ["benchmark"]


def test_json_is_the_record_of_each_result_and_nothing_else(use: Use) -> None:
    result = use("benchmark", "one.py", "--task", "causal_conv", "--json")
    built, measured = (json.loads(line) for line in result.stdout.splitlines())
    assert (built["event"], built["tool"], built["status"]) == ("tool_result", "compile_kernel", "built")
    assert (measured["tool"], measured["status"], measured["speedup"]) == ("benchmark", "timed", 2.0)


def test_guides_are_read_by_name(use: Use) -> None:
    listed = use("read_guide", "--task", "causal_conv")
    assert listed.exit_code == 0 and "depthwise: " in listed.stdout
    assert use("read_guide", "depthwise").stdout.startswith("# ")
    assert use("read_guide", "nonsense").exit_code == 2


def test_after_submit_a_call_says_how_to_go_on(use: Use, tmp_path: Path) -> None:
    use("compile_kernel", "one.py", "--task", "causal_conv")
    use("submit")
    before = events_in(tmp_path)
    refused = use("benchmark")
    assert isinstance(refused.exception, UsageError)
    assert "has ended (submitted: " in str(refused.exception) and "--task" in str(refused.exception)
    assert events_in(tmp_path) == before


def test_a_fault_of_the_machine_exits_with_3_and_leaves_the_run_open(use: Use, tmp_path: Path) -> None:
    use("compile_kernel", "one.py", "--task", "causal_conv")
    failed = use("submit", tools=ScriptedTools(verdict=Verdict.UNAVAILABLE))
    assert failed.exit_code == 3
    ended = events_in(tmp_path)[-1]
    assert isinstance(ended, Ended) and ended.reason is EndReason.TOOL_FAULT
    assert use("submit").exit_code == 0


def test_the_same_call_again_and_again_is_meant(use: Use, tmp_path: Path) -> None:
    use("compile_kernel", "one.py", "--task", "causal_conv")
    assert {use("benchmark").exit_code for _ in range(9)} == {0}
    assert not any(isinstance(event, Ended) for event in events_in(tmp_path))


def test_a_call_whose_process_was_killed_is_closed_by_the_next(use: Use, tmp_path: Path) -> None:
    use("compile_kernel", "one.py", "--task", "causal_conv")
    history = events_in(tmp_path)
    reply = ModelReplied(
        turn=2,
        text="",
        reasoning="",
        tool_calls=(compile_call(OTHER),),
        usage=Usage(),
        finish_reason="tool_calls",
        raw={},
        seconds=0.0,
        cost_usd=None,
    )
    with TranscriptLog(RunDirectory(tmp_path / "run").transcript("rollout-1"), history) as log:
        log.append(reply)
    assert use("benchmark").stdout == "2.0x\n"
    results = [event for event in events_in(tmp_path) if isinstance(event, ToolReturned)]
    assert [(event.turn, event.tool, event.executed) for event in results] == [
        (1, "compile_kernel", True),
        (2, "compile_kernel", False),
        (3, "benchmark", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("benchmark",), "--task NAME"),
        (("bogus", "--task", "causal_conv"), "There is no tool 'bogus'; the tools are compile_kernel, verify"),
        (("compile_kernel", "--task", "causal_conv"), "needs the path"),
        (("benchmark", "--kernel", "k", "--task", "causal_conv"), "--kernel is for disassemble only"),
        (("benchmark", "one.py", "--candidate", "a", "--task", "causal_conv"), "not both"),
        (("compile_kernel", "missing.py", "--task", "causal_conv"), "missing.py cannot be read"),
        (("benchmark", "--task", "no_such_task"), "no task is named"),
    ],
)
def test_wrong_usage_says_what_to_do_and_makes_nothing(
    use: Use, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = use(*arguments)
    assert isinstance(result.exception, UsageError) and said in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_a_run_is_of_one_task(use: Use) -> None:
    use("compile_kernel", "one.py", "--task", "causal_conv")
    other = use("benchmark", "--task", "conv_groupnorm")
    assert "is a run of causal_conv on cpu" in str(other.exception)


def test_a_task_of_ones_own_is_found_again_from_another_directory(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "causal_conv.py").write_text(find_task("causal_conv").source)
    monkeypatch.chdir(tmp_path)
    assert use("compile_kernel", "one.py", "--task", "./causal_conv.py").exit_code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert use("benchmark").exit_code == 0
    assert RunDirectory(tmp_path / "run").config().task_argument == str(tmp_path / "causal_conv.py")


def test_runs_of_models_and_other_folders_are_left_alone(use: Use, tmp_path: Path) -> None:
    recorded = list_runs(RECORDED)[0]
    (tmp_path / "run").symlink_to(recorded.path)
    assert "would pass for its own" in str(use("benchmark").exception)
    (tmp_path / "run").unlink()
    (tmp_path / "run").mkdir()
    assert use("compile_kernel", "one.py", "--task", "causal_conv").exit_code == 0


def test_a_folder_with_other_things_in_it_is_no_place_for_a_run(use: Use, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert isinstance(use("compile_kernel", "one.py", "--task", "causal_conv").exception, UsageError)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_resume_sends_runs_of_shells_and_clients_back_to_them(use: Use, tmp_path: Path) -> None:
    use("compile_kernel", "one.py", "--task", "causal_conv")
    app = typer.Typer()
    commands.register(app)
    result = CliRunner().invoke(app, ["resume", str(tmp_path / "run")])
    assert isinstance(result.exception, UsageError) and "came from outside (by hand)" in str(result.exception)


def fault(verdict: Verdict) -> Fault:
    return Fault(stage="verify", verdict=verdict, message="", candidate=ID)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Built(candidate=ID, extensions=(), sandbox="none", seconds=0.0), 0),
        (timed(ID, 0.5), 0),
        (fault(Verdict.INCORRECT), 1),
        (Evaluation(candidate=ID, task="t", target=Target.CPU, build=fault(Verdict.CRASHED)), 1),
        (Refused(message="no"), 2),
        (fault(Verdict.UNAVAILABLE), 3),
        (fault(Verdict.HARNESS_ERROR), 4),
    ],
)
def test_the_exit_code_says_whose_fault_it_is(result: ToolResult, code: int) -> None:
    assert exit_code(result) == code
