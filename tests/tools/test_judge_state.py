"""Buffers that the reference updates are compared like outputs."""

from collections.abc import Iterator

import pytest
from judging import INPUTS, candidate_of, message_of, task_of, verdict_of

from tasks.spec import Target
from tools.judge import Judge
from tools.results import Verified
from tools.server_process import Processes
from tools.verdict import Verdict

NORM = """
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.bn(x)
        return y
"""
CALL = "y = self.bn(x)"
BATCH = "y = functional.batch_norm(x, {mean}, {variance}, self.bn.weight, self.bn.bias, True, {momentum}, 1e-5)"
OWN_STATISTICS = "self.bn.running_mean, self.bn.running_var"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    task = task_of(tmp_path_factory.mktemp("norm"), NORM, INPUTS)
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        yield judge


def batch_norm(momentum: float = 0.1) -> str:
    return BATCH.format(mean="self.bn.running_mean", variance="self.bn.running_var", momentum=momentum)


@pytest.mark.parametrize("new", [CALL, batch_norm() + "\nself.bn.num_batches_tracked += 1"], ids=["itself", "by hand"])
def test_updated_buffers_that_are_right(judge: Judge, new: str) -> None:
    result = judge.verify(candidate_of(NORM, (CALL, new)))
    assert isinstance(result, Verified), message_of(result)
    names = {check.output for check in result.checks}
    assert names == {"output", "state bn.running_mean", "state bn.running_var", "state bn.num_batches_tracked"}


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            "y = functional.batch_norm(x, None, None, self.bn.weight, self.bn.bias, True)",
            "state bn.running_mean is wrong",
        ),
        (batch_norm(momentum=0.2) + "\nself.bn.num_batches_tracked += 1", "state bn.running_mean is wrong"),
        (batch_norm(), "state bn.num_batches_tracked is wrong (N=1 L=2, "),
        (
            "mean, biased = x.mean((0, 2)), x.var((0, 2), correction=0)\n"
            "self.bn.running_mean.lerp_(mean, 0.1)\nself.bn.running_var.lerp_(biased, 0.1)\n"
            "self.bn.num_batches_tracked += 1\n"
            "y = functional.batch_norm(x, mean, biased, self.bn.weight, self.bn.bias, False)",
            "state bn.running_var is wrong",
        ),
        ("self.bn.eval()\ny = self.bn(x)", "output is wrong"),
    ],
    ids=["frozen", "momentum", "count", "biased variance", "statistics of evaluation"],
)
def test_updated_buffers_that_are_wrong(judge: Judge, new: str, message: str) -> None:
    result = judge.verify(candidate_of(NORM, (CALL, new)))
    assert verdict_of(result) is Verdict.INCORRECT
    assert message in message_of(result)


def test_a_buffer_that_is_missing_is_named(judge: Judge) -> None:
    init = (
        "self.bn = nn.BatchNorm1d(4, track_running_stats=False)\n\n"
        "def load_reference(self, state):\n"
        "    self.bn.weight.copy_(state['bn.weight'])\n"
        "    self.bn.bias.copy_(state['bn.bias'])"
    )
    text = candidate_of(NORM, ("self.bn = nn.BatchNorm1d(4)", init)).text.replace("        def load", "    def load")
    text = text.replace("            self.bn.", "        self.bn.")
    result = judge.verify(type(candidate_of(NORM))(text))
    assert verdict_of(result) is Verdict.CONTRACT_ERROR
    assert "updates its buffer 'bn.running_mean', which ModelNew does not have" in message_of(result)
