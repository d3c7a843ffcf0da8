"""The probe of causality cuts each output where it follows the causal axis, whichever dimension that is."""

from pathlib import Path

import pytest
import torch
from judging import candidate_of, message_of, task_of, verdict_of

from tasks.spec import Target
from tools.causality import _before, _cuts
from tools.draws import USUAL, Trial
from tools.judge import Judge
from tools.results import Verified
from tools.server_process import Processes
from tools.session import Session
from tools.subject import Limits
from tools.verdict import Verdict

HEAD = """
import torch
from torch import nn
from torch.nn import functional
"""
# Time comes second and channels last, as in models that keep (batch, time, channels).
FACTS = """
from tasks.spec import Axis, InputSpec, Precision, TargetPrecision, TaskFacts

TASK = TaskFacts(
    name="running",
    title="A causal convolution over the second dimension",
    used_in="a test",
    precision=TargetPrecision(cuda=Precision.TF32, cpu=Precision.FP32),
    axes=(Axis(name="N", cuda=8, cpu=4), Axis(name="T", cuda=640, cpu=64, minimum=4, multiple_of=4)),
    inputs=(InputSpec(name="x", dims=("N", "T", 4), channel_dim=2),),
    causal_axis="T",
    receptive_field=3,
)
"""
MODEL = """

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, bias=False)

    def forward(self, x):
        y = self.conv(functional.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
        return y
"""
INPUTS = """

def get_inputs():
    return [torch.randn(8, 640, 4)]


def get_init_inputs():
    return []
"""
STRIDED = "return y[:, ::2], y.transpose(1, 2).repeat_interleave(3, 2), y.sum((1, 2))"
STEPS = {"output[0]": {1: 25}, "output[1]": {2: 150}, "output[2]": {}}


def session_of(folder: Path, model: str) -> Session:
    return Session(task_of(folder, model, INPUTS), Target.CPU, Limits(), print)


def test_a_leak_is_found_where_time_is_not_the_last_dimension(tmp_path: Path, processes: Processes) -> None:
    task = task_of(tmp_path, HEAD + FACTS + MODEL, INPUTS)
    # Only the probe is of one sample, that long, and of the usual size.
    probed = "x.shape[0] == 1 and 60 < x.shape[1] < 500 and x.abs().max() < 100"
    leaking = f"if {probed}:\n    y = y + 1e-3 * torch.roll(x, -1, 1)\nreturn y"
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        right = judge.verify(candidate_of(HEAD + MODEL))
        leak = judge.verify(candidate_of(HEAD + MODEL, ("return y", leaking)))
    assert isinstance(right, Verified), message_of(right)
    assert "causality" in right.checks[-1].trial
    assert verdict_of(leak) is Verdict.INCORRECT
    assert "causality: inputs changed from t=" in message_of(leak)


@pytest.mark.parametrize(("model", "cuts"), [(MODEL, {"output": {1: 50}}), (MODEL.replace("return y", STRIDED), STEPS)])
def test_outputs_are_cut_at_their_own_rate(tmp_path: Path, model: str, cuts: dict[str, dict[int, int]]) -> None:
    session = session_of(tmp_path, HEAD + FACTS + model)
    state = session.draws.state(session.oracle.template)
    assert _cuts(session, Trial({"N": 4, "T": 80}, USUAL, 0), 50, state) == cuts


def test_only_what_lies_before_the_time_is_kept() -> None:
    x = torch.arange(24.0).reshape(1, 6, 4)
    kept = _before([("a", x), ("b", x), ("state c", x)], {"a": {1: 2}, "b": {2: 9}})
    assert [value.shape for _, value in kept] == [(1, 2, 4), (1, 6, 4), (1, 6, 4)]
    assert torch.equal(kept[0][1], x[:, :2])
