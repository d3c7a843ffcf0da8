"""x + Conv1d(ReLU(BatchNorm1d(x))) with a dilation of 128: a pre-norm residual block."""

import torch
from torch import nn

from tasks.spec import Axis, InputSpec, Precision, TargetPrecision, TaskFacts

TASK = TaskFacts(
    name="prenorm_dilated_residual",
    title="BatchNorm1d, ReLU, dilated Conv1d and residual addition",
    used_in=(
        "The problem of seed transcript 000, in which a model writes CUDA kernels (32 x 256 x 4096, kernel 3, "
        "dilation 128). Residual stacks of dilated convolutions are the body of WaveNet vocoders "
        "(r9y9/wavenet_vocoder) and TCNs (locuslab/TCN); those two put no BatchNorm before the convolution."
    ),
    precision=TargetPrecision(cuda=Precision.TF32, cpu=Precision.FP32),
    axes=(
        Axis(name="N", cuda=32, cpu=2),
        Axis(name="L", cuda=4096, cpu=1024, minimum=2),
    ),
    inputs=(InputSpec(name="x", dims=("N", 256, "L")),),
    modes=("train", "eval"),
    state=("bn.running_mean", "bn.running_var", "bn.num_batches_tracked"),
    receptive_field=257,
    notes=(
        "In training mode BatchNorm uses the statistics of the batch, so the whole input must be read before the first "
        "output exists, and running_mean, running_var (unbiased) and num_batches_tracked are updated by every call. In "
        "eval mode it is a scale and a shift per channel that fold into the read of x. The zero padding of the "
        "convolution comes after ReLU: outside the input the convolution sees 0, not ReLU(shift). BatchNorm in "
        "training mode needs more than one value per channel, hence L >= 2."
    ),
)


class Model(nn.Module):
    """A pre-norm residual block: normalise, rectify, convolve with dilation, add the input."""

    def __init__(self, channels: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        padding = (kernel_size - 1) * dilation // 2
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding=padding, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, L) to (N, channels, L)."""
        out: torch.Tensor = x + self.conv(torch.relu(self.bn(x)))
        return out


batch_size = 32
channels = 256
seq_len = 4096
kernel_size = 3
dilation = 128


def get_inputs() -> list[torch.Tensor]:
    """One input on the benchmark shape of the `cuda` target."""
    return [torch.randn(batch_size, channels, seq_len)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [channels, kernel_size, dilation]
