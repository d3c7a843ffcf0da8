"""Operations and bytes of the shipped tasks, worked out by hand, and the bound that follows."""

import pytest

from tasks.loader import find_task
from tasks.spec import Precision, Target
from tools.briefing import Machine
from tools.machine import machine
from tools.workload import Workload, workload

FLOAT = 4
CUDA, CPU = Target.CUDA, Target.CPU


@pytest.mark.parametrize(
    ("task", "target", "flops"),
    [
        # 2 * batch * outputs * length * inputs * width
        ("causal_conv", CUDA, 2 * 32 * 256 * 8192 * 256 * 4),
        ("causal_conv", CPU, 2 * 2 * 256 * 1024 * 256 * 4),
        ("conv_groupnorm", CUDA, 2 * 16 * 256 * 1024 * 128 * 3),
        ("conv_groupnorm", CPU, 2 * 4 * 256 * 512 * 128 * 3),
        # depthwise: one input channel an output; then pointwise
        ("depthwise_separable", CUDA, 2 * 16 * 128 * 2048 * (5 + 128)),
        ("depthwise_separable", CPU, 2 * 4 * 128 * 2048 * (5 + 128)),
        ("prenorm_dilated_residual", CUDA, 2 * 32 * 256 * 4096 * 256 * 3),
        ("prenorm_dilated_residual", CPU, 2 * 2 * 256 * 1024 * 256 * 3),
        ("prenorm_dilated_residual_eval", CUDA, 2 * 32 * 256 * 4096 * 256 * 3),
    ],
)
def test_operations(task: str, target: Target, flops: int) -> None:
    assert workload(find_task(task), target).flop_count == flops


@pytest.mark.parametrize(
    ("task", "target", "inputs", "outputs", "state"),
    [
        ("causal_conv", CUDA, 32 * 256 * 8192 * FLOAT, 32 * 256 * 8192 * FLOAT, 256 * 256 * 4 * FLOAT),
        ("causal_conv", CPU, 2 * 256 * 1024 * FLOAT, 2 * 256 * 1024 * FLOAT, 256 * 256 * 4 * FLOAT),
        (
            "conv_groupnorm",
            CUDA,
            16 * 128 * 1024 * FLOAT,
            16 * 256 * 1024 * FLOAT,
            (256 * 128 * 3 + 2 * 256) * FLOAT,
        ),
        (
            "depthwise_separable",
            CPU,
            4 * 128 * 2048 * FLOAT,
            4 * 128 * 2048 * FLOAT,
            (128 * 5 + 128 * 128) * FLOAT,
        ),
        (
            # BatchNorm: weight, bias, running mean and variance, and a count of eight bytes
            "prenorm_dilated_residual",
            CUDA,
            32 * 256 * 4096 * FLOAT,
            32 * 256 * 4096 * FLOAT,
            (256 * 256 * 3 + 256 + 4 * 256) * FLOAT + 8,
        ),
    ],
)
def test_bytes(task: str, target: Target, inputs: int, outputs: int, state: int) -> None:
    work = workload(find_task(task), target)
    assert (work.input_bytes, work.output_bytes) == (inputs, outputs)
    assert work.byte_count == inputs + outputs + state


def with_peaks(bytes_per_s: float | None, flops_per_s: float | None) -> Machine:
    here = machine(CPU, Precision.FP32)
    return here.model_copy(update={"peak_bytes_per_s": bytes_per_s, "peak_flops_per_s": flops_per_s})


def test_the_bound_is_the_larger_of_both_times() -> None:
    work = Workload(flop_count=4_000_000_000, byte_count=1_000_000_000, output_bytes=0, input_bytes=0)
    assert work.floor_ns(with_peaks(1e12, 1e12)) == pytest.approx(4e6)
    assert work.floor_ns(with_peaks(1e12, 1e13)) == pytest.approx(1e6)


def test_there_is_no_bound_without_both_peaks() -> None:
    work = Workload(1, 1, 1, 1)
    assert work.floor_ns(with_peaks(None, 1e12)) is None
    assert work.floor_ns(with_peaks(1e12, None)) is None
