"""Every task that ships with the project is admitted: its checks see each mutant of its reference."""

import pytest

from tasks.loader import find_task, task_names
from tasks.spec import Target
from tools.admission import admit

# Written down by reading the references, so that a mutant that is no longer made is missed.
OF_EACH_OPERATION = {
    "causal_conv": {"other dilation in conv1d"},
    "conv_groupnorm": {
        *("other dilation in conv1d", "group_norm left out", "no norm.weight", "no norm.bias"),
        "default parameters of norm",
    },
    "depthwise_separable": {
        *("conv1d #0 left out", "other dilation in conv1d #0", "silu left out", "conv1d #2 left out"),
    },
    "prenorm_dilated_residual": {
        *("add_ left out", "batch_norm left out", "module bn left out", "relu left out", "conv1d left out"),
        *("add left out", "add answers operand 2", "other dilation in conv1d", "no conv.bias", "no bn.weight"),
        *("no bn.bias", "default parameters of bn", "bn.running_mean not updated", "bn.running_var not updated"),
        "bn.num_batches_tracked not updated",
    },
    "prenorm_dilated_residual_eval": {
        *("batch_norm left out", "module bn left out", "relu left out", "conv1d left out", "add left out"),
        *("add answers operand 2", "other dilation in conv1d", "no conv.bias", "no bn.weight", "no bn.bias"),
        *("default parameters of bn", "default statistics of bn"),
    },
}
OF_ANY_TASK = {
    *("zeros", "copy of x", "shifted later", "shifted earlier", "no last element", "no tail", "no last channel"),
    "no last sample",
}


def require_admission(name: str, target: Target) -> None:
    admission = admit(find_task(name), target, lambda _: None)
    assert [mutant for mutant in admission.mutants if not mutant.as_it_must] == []
    assert [variant for variant in admission.honest if not variant.as_it_must] == []
    assert admission.admitted
    assert {mutant.name for mutant in admission.mutants} == OF_ANY_TASK | OF_EACH_OPERATION[name]
    assert admission.not_tried == ()


def test_every_shipped_task_is_listed() -> None:
    assert tuple(sorted(OF_EACH_OPERATION)) == task_names()


@pytest.mark.long
@pytest.mark.parametrize("name", OF_EACH_OPERATION)
def test_on_the_host(name: str) -> None:
    require_admission(name, Target.CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("name", OF_EACH_OPERATION)
def test_on_the_gpu(name: str) -> None:
    require_admission(name, Target.CUDA)
