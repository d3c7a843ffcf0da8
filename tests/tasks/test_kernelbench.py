"""Facts of KernelBench problem files without TASK are derived by executing and probing them."""

from pathlib import Path

import pytest

from tasks.errors import TaskError
from tasks.loader import find_task
from tasks.spec import Precision, Target, TaskFacts

PROBLEM = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """
    Performs a standard 1D convolution operation.
    """
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, dilation=1):
        super().__init__()
        self.conv1d = nn.Conv1d(in_channels, out_channels, kernel_size, stride=stride, dilation=dilation)

    def forward(self, x):
        return self.conv1d(x)

def get_inputs():
    return [torch.rand(16, 6, 65536)]

def get_init_inputs():
    return [6, 12, 3, 3, 4]
'''

FORM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def derive(folder: Path, text: str, name: str = "problem.py") -> TaskFacts:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return find_task(path).facts


def derive_form(folder: Path, result: str, inputs: str, names: str = "x", init: str = "pass") -> TaskFacts:
    return derive(folder, FORM.format(init=init, names=names, result=result, inputs=inputs))


def test_a_strided_dilated_convolution(tmp_path: Path) -> None:
    """KernelBench level 1 number 76 in small: kernel 3, stride 3 and dilation 4 need nine steps."""
    facts = derive(tmp_path, PROBLEM, "76_conv_standard_1D_dilated_strided__.py")
    assert facts.name == "conv_standard_1d_dilated_strided_76"
    assert facts.title == "Performs a standard 1D convolution operation."
    assert [(axis.name, axis.cuda, axis.minimum, axis.multiple_of) for axis in facts.axes] == [
        ("N", 16, 1, 1),
        ("L", 65536, 9, 1),
    ]
    assert facts.inputs[0].dims == ("N", 6, "L")
    assert facts.inputs[0].domain == "nonnegative"
    assert facts.precision_on(Target.CUDA) is Precision.TF32
    assert facts.precision_on(Target.CPU) is Precision.FP32
    assert facts.modes == ("train",)


def test_the_hosts_shape_is_halved_until_it_is_small(tmp_path: Path) -> None:
    """16 x 6 x 65536 in and 16 x 12 x 21843 out are 40 MiB; two halvings of the length give 10 MiB."""
    assert derive(tmp_path, PROBLEM).benchmark_sizes(Target.CPU) == {"N": 16, "L": 16384}


def test_a_fixed_length_is_no_axis(tmp_path: Path) -> None:
    facts = derive_form(tmp_path, "self.fc(x)", "torch.randn(8, 40)", init="self.fc = nn.Linear(40, 3)")
    assert [axis.name for axis in facts.axes] == ["N"]
    assert facts.inputs[0].dims == ("N", 40)
    assert facts.inputs[0].domain == "real"


def test_a_length_that_must_be_a_multiple(tmp_path: Path) -> None:
    facts = derive_form(tmp_path, "x.reshape(x.shape[0], 3, x.shape[2] // 4, 4).sum(-1)", "torch.randn(2, 3, 64)")
    assert [(axis.name, axis.minimum, axis.multiple_of) for axis in facts.axes] == [("N", 1, 1), ("L", 4, 4)]


def test_square_matrices_have_no_free_axes_of_their_own(tmp_path: Path) -> None:
    facts = derive_form(tmp_path, "a @ b", "torch.randn(64, 64), torch.randn(64, 64)", names="a, b")
    assert facts.axes == ()
    assert [spec.name for spec in facts.inputs] == ["input_0", "input_1"]


def test_batch_statistics_need_two_values_and_change_state(tmp_path: Path) -> None:
    facts = derive_form(tmp_path, "self.bn(x)", "torch.randn(4, 5, 32)", init="self.bn = nn.BatchNorm1d(5)")
    assert facts.state == ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked")
    assert [(axis.name, axis.minimum) for axis in facts.axes] == [("N", 1), ("L", 2)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_inputs_set_the_class(tmp_path: Path, dtype: str) -> None:
    facts = derive_form(tmp_path, "x * 2", f"torch.randn(2, 3, 8).to(torch.{dtype})")
    assert facts.precision_on(Target.CUDA).value == {"float16": "fp16", "bfloat16": "bf16"}[dtype]
    assert facts.inputs[0].dtype == dtype


def test_integer_inputs_keep_their_range(tmp_path: Path) -> None:
    facts = derive_form(
        tmp_path,
        "nn.functional.cross_entropy(x, y)",
        "torch.randn(32, 10), torch.arange(32) % 10",
        names="x, y",
    )
    assert (facts.inputs[1].domain, facts.inputs[1].high, facts.inputs[1].dims) == ("integer", 10, ("N",))
    assert facts.inputs[0].dims == ("N", 10)


def test_inputs_that_are_not_tensors_are_explained(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"get_inputs\(\)\[1\] is a int; inputs must be tensors.*get_init_inputs"):
        derive_form(tmp_path, "x * n", "torch.randn(2, 3), 5", names="x, n")


def test_a_model_that_refuses_its_own_inputs_is_explained(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"does not run on the shapes of its own get_inputs\(\)"):
        derive_form(tmp_path, "self.fc(x)", "torch.randn(8, 41)", init="self.fc = nn.Linear(40, 3)")


def test_a_file_in_another_form_is_explained(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"Model, get_inputs, get_init_inputs not defined; a KernelBench problem"):
        derive(tmp_path, "import torch\n")
