"""Tasks are admitted if their checks see every mutant, and refused if they do not; on small problems."""

from functools import partial
from pathlib import Path

import pytest
from judging import INPUTS, NORMALISED, task_of

from tasks.loader import Task
from tasks.spec import Precision, Target
from tools.admission import Admission, HonestTried, MutantTried, admit
from tools.judge import Judge
from tools.server_process import Processes
from tools.verdict import Verdict

HEAD = """
import torch
from torch import nn
from torch.nn import functional
"""
SCALED = """

class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, 3))

    def forward(self, x):
        return functional.conv1d(x, self.weight * 1e-5, padding=1)
"""
IDENTITY_LIKE = """

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1, bias=False)
        nn.init.dirac_(self.conv.weight)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        return self.norm(self.conv(x))
"""
HIDDEN_BRANCH = """

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1, bias=False)

    def forward(self, x):
        return x + 1e-9 * torch.tanh(self.conv(x))
"""
STATED = """
from tasks.spec import Axis, InputSpec, Precision, TargetPrecision, TaskFacts

TASK = TaskFacts(
    name="wide",
    title="Conv1d from 64 to 128 channels",
    used_in="A test.",
    precision=TargetPrecision(cuda=Precision.TF32, cpu=Precision.TF32),
    axes=(Axis(name="N", cuda=4, cpu=2), Axis(name="L", cuda=256, cpu=128)),
    inputs=(InputSpec(name="x", dims=("N", 64, "L")),),
    receptive_field=3,
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(64, 128, 3, padding=1)

    def forward(self, x):
        return self.conv(x)
"""
HALF = """

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1).half()

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(4, 4, 64).half()]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def shared_server(monkeypatch: pytest.MonkeyPatch, processes: Processes) -> None:
    monkeypatch.setattr("tools.admission.Judge", partial(Judge, processes=processes))


def admission_of(task: Task) -> Admission:
    return admit(task, Target.CPU, lambda _: None)


def mutant(admission: Admission, name: str) -> MutantTried:
    return next(tried for tried in admission.mutants if tried.name == name)


def honest(admission: Admission, name: str) -> HonestTried:
    return next(tried for tried in admission.honest if tried.name == name)


def test_a_normalised_convolution_is_admitted_with_its_margins(tmp_path: Path) -> None:
    admission = admission_of(task_of(tmp_path, NORMALISED))
    assert admission.admitted
    assert admission.precision is Precision.FP32
    assert {tried.name for tried in admission.mutants} == {
        *("zeros", "copy of x", "shifted later", "shifted earlier", "no last element", "no tail"),
        *("no last channel", "no last sample", "other dilation in conv1d", "conv1d left out", "group_norm left out"),
        *("relu left out", "no conv.bias", "no norm.bias", "no norm.weight", "default parameters of norm"),
    }
    assert [tried.name for tried in admission.honest] == ["PyTorch in fp32", "float64", "rounded operands"]
    assert admission.not_tried == ()
    assert all(tried.excess is not None and tried.excess > 1 for tried in admission.mutants)
    assert all(tried.used is not None and tried.used < 0.5 for tried in admission.honest)
    # Rounded to the nearest float32, an exact result is off by at most 2**-24 of itself.
    assert (honest(admission, "float64").used or 1) < 0.05
    assert Admission.model_validate_json(admission.model_dump_json()) == admission


def test_r1_zeros_are_incorrect_where_outputs_are_tiny(tmp_path: Path) -> None:
    admission = admission_of(task_of(tmp_path, HEAD + SCALED, INPUTS))
    assert admission.admitted
    zeros = mutant(admission, "zeros")
    assert zeros.verdict is Verdict.INCORRECT
    # All of the output is missing: a relative error of 1.
    assert zeros.excess is not None and zeros.excess > 1e4


def test_r1_a_task_whose_checks_cannot_see_a_part_of_it_is_refused(tmp_path: Path) -> None:
    admission = admission_of(task_of(tmp_path, HEAD + HIDDEN_BRANCH, INPUTS))
    assert not admission.admitted
    accepted = {tried.name for tried in admission.mutants if tried.verdict is Verdict.CORRECT}
    # The branch adds at most 1e-9 to channels of 1e-3 and more, less than the class resolves: nobody can tell it.
    assert {"add left out", "copy of x", "conv1d left out", "other dilation in conv1d"} == accepted
    assert mutant(admission, "zeros").verdict is Verdict.INCORRECT


def test_r2_a_normalisation_left_out_is_incorrect_behind_an_identity(tmp_path: Path) -> None:
    admission = admission_of(task_of(tmp_path, HEAD + IDENTITY_LIKE, INPUTS))
    assert admission.admitted
    for name in ("copy of x", "group_norm left out", "no norm.weight", "no norm.bias", "default parameters of norm"):
        assert mutant(admission, name).verdict is Verdict.INCORRECT


def test_r5_what_is_more_exact_than_the_class_is_accepted(tmp_path: Path) -> None:
    inputs = INPUTS.replace("torch.randn(4, 4, 64)", "torch.randn(4, 64, 256)")
    admission = admission_of(task_of(tmp_path, HEAD + STATED, inputs))
    assert admission.precision is Precision.TF32
    assert admission.admitted
    assert (honest(admission, "PyTorch in fp32").used or 1) < 0.1
    # The limit is four times the error of operands rounded to TF32, drawn anew but much the same each time.
    assert 0.2 < (honest(admission, "rounded operands").used or 0) < 0.5
    # Cut operands err as the limit foretells, which is 1.25 times that or a little more.
    assert 0.5 < (honest(admission, "cut operands").used or 0) <= 0.81


def test_a_task_in_half_precision_is_admitted(tmp_path: Path) -> None:
    admission = admission_of(task_of(tmp_path, HEAD + HALF, ""))
    assert admission.admitted
    assert admission.precision is Precision.FP16
    assert [tried.name for tried in admission.honest] == [
        "PyTorch in fp16",
        "float64",
        "rounded operands",
        "PyTorch in fp32",
    ]


def test_an_admission_cannot_contradict_what_was_tried() -> None:
    accepted = MutantTried(name="zeros", does="x", verdict=Verdict.CORRECT, excess=None, message="")
    with pytest.raises(ValueError, match="admitted must say"):
        Admission(
            task="t",
            target=Target.CPU,
            precision=Precision.FP32,
            mutants=(accepted,),
            honest=(),
            not_tried=(),
            admitted=True,
            seconds=0.0,
        )
