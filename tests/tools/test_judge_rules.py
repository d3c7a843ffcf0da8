"""What a task file states is kept: causality, smallest sizes, multiples."""

from pathlib import Path

import pytest
from judging import candidate_of, message_of, task_of, verdict_of

from tasks.spec import Target
from tools.judge import Judge
from tools.results import Verified
from tools.server_process import Processes
from tools.verdict import Verdict

CAUSAL = """
import torch
from torch import nn
from torch.nn import functional

from tasks.spec import Axis, InputSpec, Precision, TargetPrecision, TaskFacts

TASK = TaskFacts(
    name="running",
    title="A causal convolution over whole blocks",
    used_in="a test",
    precision=TargetPrecision(cuda=Precision.TF32, cpu=Precision.FP32),
    axes=(Axis(name="N", cuda=8, cpu=4, {batch}), Axis(name="L", cuda=640, cpu=64, {length})),
    inputs=(InputSpec(name="x", dims=("N", 4, "L")),),
    causal_axis="L",
    receptive_field=3,
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, bias=False)

    def forward(self, x):
        assert x.shape[0] % {step_n} == 0 and x.shape[-1] % {step_l} == 0, tuple(x.shape)
        y = self.conv(functional.pad(x, (2, 0)))
        return y
"""
FREE = CAUSAL.format(batch="minimum=1", length="minimum=1", step_n=1, step_l=1)
IN_BLOCKS = CAUSAL.format(batch="multiple_of=2", length="multiple_of=16", step_n=2, step_l=16)
INPUTS = """

def get_inputs():
    return [torch.randn(8, 4, 640)]


def get_init_inputs():
    return []
"""
# Candidates run without the project on their path.
PLAIN = FREE[: FREE.index("from tasks.spec")] + FREE[FREE.index("class Model") :]
FUTURE = "functional.pad(x, (0, 1))[..., 1:]"


def test_a_leak_from_the_future_is_found(tmp_path: Path, processes: Processes) -> None:
    leak = candidate_of(PLAIN, ("return y", f"return y + 1e-4 * {FUTURE}"))
    with Judge(task_of(tmp_path, FREE, INPUTS), Target.CPU, allow_library=True, processes=processes) as judge:
        right = judge.verify(candidate_of(PLAIN))
        result = judge.verify(leak)
    assert isinstance(right, Verified), message_of(right)
    assert "causality: inputs changed from t=" in right.checks[-1].trial
    assert verdict_of(result) is Verdict.INCORRECT


@pytest.mark.parametrize("probed", [True, False])
def test_every_call_keeps_to_the_multiples_of_the_axes(tmp_path: Path, probed: bool, processes: Processes) -> None:
    """The probe of causality once took lengths and batches that the task does not allow."""
    model = IN_BLOCKS if probed else IN_BLOCKS.replace('    causal_axis="L",\n', "")
    plain = model[: model.index("from tasks.spec")] + model[model.index("class Model") :]
    with Judge(task_of(tmp_path, model, INPUTS), Target.CPU, allow_library=True, processes=processes) as judge:
        results = [judge.verify(candidate_of(plain)) for _ in range(3)]
    assert [verdict_of(result) for result in results] == [Verdict.CORRECT] * 3, [message_of(r) for r in results]


def test_a_reference_that_refuses_a_shape_its_facts_allow_is_our_fault(tmp_path: Path, processes: Processes) -> None:
    model = FREE.replace("% 1 == 0,", "> 4,")
    with Judge(task_of(tmp_path, model, INPUTS), Target.CPU, allow_library=True, processes=processes) as judge:
        result = judge.verify(candidate_of(PLAIN))
    assert verdict_of(result) is Verdict.HARNESS_ERROR
    assert "correct the task's axes" in message_of(result)
