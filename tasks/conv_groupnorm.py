"""GroupNorm(Conv1d(x)): a convolution whose output is normalised over groups of channels."""

import torch
from torch import nn

from tasks.spec import Axis, InputSpec, Precision, TargetPrecision, TaskFacts

TASK = TaskFacts(
    name="conv_groupnorm",
    title="Conv1d without bias, then GroupNorm over 32 groups",
    used_in=(
        "The problem of seed transcript 001, in which a model writes CUDA kernels (16 x 128 x 1024, 256 output "
        "channels, 32 groups). Conv1d followed by GroupNorm opens wav2vec 2.0 and HuBERT (facebookresearch/fairseq, "
        "first layer, one channel a group) and fills the residual branches of Demucs (facebookresearch/demucs, DConv, "
        "one group)."
    ),
    precision=TargetPrecision(cuda=Precision.TF32, cpu=Precision.FP32),
    axes=(
        Axis(name="N", cuda=16, cpu=4),
        Axis(name="L", cuda=1024, cpu=512),
    ),
    inputs=(InputSpec(name="x", dims=("N", 128, "L")),),
    receptive_field=3,
    notes=(
        "A group is 8 output channels of one sample over the whole length; its mean and biased variance must be known "
        "before its first output is. The receptive field given is the convolution's alone. The variance as "
        "E[x^2] - E[x]^2 cancels where a group's mean is large."
    ),
)


class Model(nn.Module):
    """A convolution, then group normalisation with a weight and a bias per channel."""

    def __init__(self, in_channels: int, out_channels: int, num_groups: int, kernel_size: int, padding: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, stride=1, padding=padding, bias=False)
        self.norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in_channels, L) to (N, out_channels, L)."""
        out: torch.Tensor = self.norm(self.conv(x))
        return out


batch_size = 16
in_channels = 128
out_channels = 256
num_groups = 32
seq_len = 1024
kernel_size = 3
padding = 1


def get_inputs() -> list[torch.Tensor]:
    """One input on the benchmark shape of the `cuda` target."""
    return [torch.randn(batch_size, in_channels, seq_len)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [in_channels, out_channels, num_groups, kernel_size, padding]
