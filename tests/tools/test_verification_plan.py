"""Who is asked the same as another, and who never is."""

from pathlib import Path

import torch
from judging import CONVOLUTION, LONG_INPUTS, task_of

from tasks.spec import Target
from tools.session import Session
from tools.subject import Limits
from tools.verification_plan import Plan, Planner


def session_of(folder: Path) -> Session:
    return Session(task_of(folder, CONVOLUTION, LONG_INPUTS), Target.CPU, Limits(), print)


def values(plan: Plan) -> list[torch.Tensor]:
    return [value for _, inputs, _ in plan.drawn for _, value in inputs]


def test_candidates_that_are_written_one_after_another_are_never_asked_the_same(tmp_path: Path) -> None:
    planner = Planner(session_of(tmp_path), fixed_candidates=False)
    first, second = planner.plan(), planner.plan()
    benchmark_shape = values(first)[-1], values(second)[-1]
    assert benchmark_shape[0].shape == benchmark_shape[1].shape
    assert not torch.equal(*benchmark_shape)
    assert all(not torch.equal(first.states[0][name], second.states[0][name]) for name in first.states[0])


def test_candidates_that_were_all_there_before_share_one_plan(tmp_path: Path) -> None:
    planner = Planner(session_of(tmp_path), fixed_candidates=True)
    assert planner.plan() is planner.plan()
