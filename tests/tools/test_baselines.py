"""The baselines' texts, and the plain KernelBench form of a task."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tasks.errors import HarnessError
from tasks.loader import Task, all_tasks, find_task
from tasks.spec import Target
from tools.baselines import EAGER, baseline_candidates, kernelbench_source
from tools.pace import Pace
from tools.session import Session
from tools.timer import Timer
from tools.verdict import Verdict
from tools.workers import CandidateFault

PROBLEM = '''"""A problem with names that look like facts."""

from __future__ import annotations

import torch
from torch import nn

NUM_TASKS = 3
SUBTASKS: int = 2


class Model(nn.Module):
    """Multiplies."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape."""
        return x * NUM_TASKS * SUBTASKS


def get_inputs() -> list[torch.Tensor]:
    """One."""
    return [torch.randn(4, 8)]


def get_init_inputs() -> list[int]:
    """None."""
    return []
'''


@pytest.fixture
def problem(tmp_path: Path) -> Task:
    path = tmp_path / "1_multiply.py"
    path.write_text(PROBLEM)
    return find_task(path)


@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
def test_the_plain_form_has_no_facts_and_runs_alone(task: Task) -> None:
    source = kernelbench_source(task)
    assert "TASK" not in source
    assert "tasks" not in {line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith("from ")}
    names: dict[str, object] = {}
    exec(compile(source, "plain", "exec"), names)
    assert {"Model", "get_inputs", "get_init_inputs"} <= set(names)
    assert ast.get_docstring(ast.parse(source)) == ast.get_docstring(ast.parse(task.source))


def test_names_that_only_resemble_the_facts_stay(problem: Task) -> None:
    """`NUM_TASKS = 3` was taken for the facts, and the baseline then lacked it."""
    assert kernelbench_source(problem) == PROBLEM


@pytest.mark.parametrize("target", Target)
def test_every_baseline_is_valid_python(problem: Task, target: Target) -> None:
    """A future import must stay in front."""
    for candidate in baseline_candidates(problem, target).values():
        names: dict[str, object] = {}
        exec(compile(candidate.text, "baseline", "exec"), names)
        assert isinstance(names["ModelNew"], type)


def test_which_baselines_a_target_has(problem: Task) -> None:
    assert set(baseline_candidates(problem, Target.CPU)) == {"eager", "torch.compile"}
    assert set(baseline_candidates(problem, Target.CUDA)) == {"eager", "torch.compile", "cudnn-autotuned"}


def test_a_baseline_that_fails_while_all_are_timed_is_no_candidates_fault(
    problem: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for in a candidate's benchmark, which was blamed."""

    def failing(_: object) -> int:
        raise CandidateFault(Verdict.CRASHED, "the worker was ended by SIGSEGV.")

    pace = Pace(cast("Session", SimpleNamespace(task=problem, target=Target.CPU, card=None)))
    pace._prepared = {EAGER: cast("Timer", SimpleNamespace(call=lambda: failing(None), close=lambda: None))}
    monkeypatch.setattr(pace, "prepare", lambda: None)
    monkeypatch.setattr("tools.pace.warm_up", lambda _: None)
    with pytest.raises(HarnessError, match="SIGSEGV"):
        pace.fastest()
