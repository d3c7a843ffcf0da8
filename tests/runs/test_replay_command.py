"""Tests of the command `replay`, with tools that follow a script."""

import json
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import typer
from sample_transcripts import write_run
from test_replay import Machine
from typer.testing import CliRunner, Result

from runs.commands import register
from tasks.spec import Target

asked: list[Target] = []


class ScriptedJudge:
    """A judge that only remembers for which target it was asked."""

    def __init__(self, _task: object, target: Target, *, fixed_candidates: bool, progress: object) -> None:
        asked.append(target)
        assert fixed_candidates
        assert callable(progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""


def replay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *options: str, crashing: bool) -> Result:
    asked.clear()
    monkeypatch.setattr("tools.judge.Judge", ScriptedJudge)
    monkeypatch.setattr("tools.toolbox.Toolbox", lambda _: Machine(crashing))
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, ["replay", str(write_run(tmp_path).path), *options])


def test_recorded_and_new_results_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = replay(monkeypatch, tmp_path, crashing=False)
    assert result.exit_code == 0, result.output
    assert asked == [Target.CPU]
    (row,) = (line for line in result.output.splitlines() if "submit" in line and line.count("correct") == 2)
    assert row.count("2.00x (1.90 to 2.10)") == 2


def test_verdict_that_differs_is_told_and_exits_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = replay(monkeypatch, tmp_path, "--target", "cuda", crashing=True)
    assert result.exit_code == 1
    assert asked == [Target.CUDA]
    assert "crashed, but correct was recorded" in result.output


def test_json_is_one_object_a_call_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = replay(monkeypatch, tmp_path, "--json", crashing=True)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [
        (line["tool"], line["recorded"]["verdict"], line["replayed"]["verdict"], line["agrees"]) for line in lines
    ] == [
        ("compile_kernel", "build_failed", "build_failed", True),
        ("compile_kernel", "built", "built", True),
        ("submit", "correct", "crashed", False),
    ]
