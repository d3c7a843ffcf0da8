"""The oracle with a state answers one question after another as if each were its first; by hand, in float64."""

from pathlib import Path

import pytest
import torch
from judging import task_of

from tasks.spec import Target
from tools.oracle import Oracle

NORM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(4)

    def forward(self, x):
        x.mul_(2.0)
        return self.bn(x)
"""
INPUTS = """

def get_inputs():
    return [torch.randn(2, 4, 64)]


def get_init_inputs():
    return []
"""


def test_answers_to_many_questions_with_one_state(tmp_path: Path) -> None:
    oracle = Oracle(task_of(tmp_path, NORM, INPUTS), Target.CPU, "cpu")
    state = {name: torch.rand(value.shape).to(value.dtype) + 1 for name, value in oracle.template.items()}
    kept = {name: value.clone() for name, value in state.items()}
    filled = oracle.with_state(state)
    for _ in range(3):
        given = torch.randn(2, 4, 64)
        x = 2.0 * given.double()
        mean, variance = x.mean((0, 2)), x.var((0, 2), correction=0)
        scaled = (x - mean[:, None]) / (variance[:, None] + 1e-5).sqrt()
        y = scaled * kept["bn.weight"][:, None].double() + kept["bn.bias"][:, None].double()
        running = 0.9 * kept["bn.running_mean"].double() + 0.1 * mean
        before = given.clone()
        answer = filled.answer([given])
        exact, working = dict(answer.exact), dict(filled.working([given]))
        assert torch.equal(given, before), "the reference writes into what it is given"
        assert torch.allclose(exact["output"], y, rtol=1e-12, atol=1e-12)
        assert torch.allclose(exact["state bn.running_mean"], running, rtol=1e-12, atol=1e-12)
        assert torch.allclose(working["output"], y.float(), rtol=1e-4, atol=1e-5)
        assert exact["state bn.num_batches_tracked"] == kept["bn.num_batches_tracked"] + 1
        assert answer.dtypes["output"] == torch.float32
        assert 0 < answer.honest[0]["output"].rms < 1e-6
    assert all(torch.equal(state[name], kept[name]) for name in state)


def test_another_state_is_another_answer(tmp_path: Path) -> None:
    oracle = Oracle(task_of(tmp_path, NORM, INPUTS), Target.CPU, "cpu")
    given = torch.randn(2, 4, 64)
    plain = {name: torch.zeros_like(value) for name, value in oracle.template.items()}
    shifted = {**plain, "bn.bias": torch.full((4,), 3.0)}
    assert float(dict(oracle.working([given], plain))["output"].abs().max()) == 0.0
    assert dict(oracle.exact([given], shifted))["output"].unique().tolist() == pytest.approx([3.0])
