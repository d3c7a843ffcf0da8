"""A depthwise dilated Conv1d, SiLU, and a pointwise Conv1d: a depthwise-separable convolution."""

import torch
from torch import nn
from torch.nn import functional

from tasks.spec import Axis, InputSpec, Precision, TargetPrecision, TaskFacts

TASK = TaskFacts(
    name="depthwise_separable",
    title="Depthwise dilated Conv1d, SiLU, pointwise Conv1d, without biases",
    used_in=(
        "The problem of seed transcript 003, in which a model writes CUDA kernels (16 x 128 x 2048, kernel 5, dilation "
        "2). Depthwise convolutions followed by 1x1 convolutions are the body of Conformer's convolution module and of "
        "Conv-TasNet (both as written in speechbrain/speechbrain), with normalisation between them."
    ),
    precision=TargetPrecision(cuda=Precision.TF32, cpu=Precision.FP32),
    axes=(
        Axis(name="N", cuda=16, cpu=4),
        Axis(name="L", cuda=2048, cpu=2048),
    ),
    inputs=(InputSpec(name="x", dims=("N", 128, "L")),),
    receptive_field=9,
    notes=(
        "'same' padding is 4 zero steps on either side, two taps of dilation 2. Fused, it reads one input and writes "
        "one output; PyTorch reads and writes a tensor of that size three times."
    ),
)


class Model(nn.Module):
    """A depthwise convolution with 'same' padding, SiLU, then a 1x1 convolution."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1) -> None:
        super().__init__()
        self.dw = nn.Conv1d(
            in_channels, in_channels, kernel_size, padding="same", dilation=dilation, groups=in_channels, bias=False
        )
        self.pw = nn.Conv1d(in_channels, out_channels, kernel_size=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in_channels, L) to (N, out_channels, L)."""
        out: torch.Tensor = self.pw(functional.silu(self.dw(x)))
        return out


batch_size = 16
in_channels = 128
out_channels = 128
seq_len = 2048
kernel_size = 5
dilation = 2


def get_inputs() -> list[torch.Tensor]:
    """One input on the benchmark shape of the `cuda` target."""
    return [torch.randn(batch_size, in_channels, seq_len)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [in_channels, out_channels, kernel_size, dilation]
