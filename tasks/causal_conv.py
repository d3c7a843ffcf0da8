"""Conv1d over an input padded on the left only, so that no output sees the future."""

import torch
from torch import nn
from torch.nn import functional

from tasks.spec import Axis, InputSpec, Precision, TargetPrecision, TaskFacts

TASK = TaskFacts(
    name="causal_conv",
    title="Causal Conv1d without bias: padding of (k - 1) * dilation on the left",
    used_in=(
        "The problem of seed transcript 002, in which a model writes CUDA kernels (32 x 256 x 8192, kernel 4, "
        "dilation 1). Dense causal convolutions are the layers of WaveNet vocoders (r9y9/wavenet_vocoder), "
        "TCNs (locuslab/TCN) and the EnCodec codec (facebookresearch/encodec); Mamba's causal convolution "
        "(state-spaces/mamba) also has kernel 4 but is depthwise."
    ),
    precision=TargetPrecision(cuda=Precision.TF32, cpu=Precision.FP32),
    axes=(
        Axis(name="N", cuda=32, cpu=2),
        Axis(name="L", cuda=8192, cpu=1024),
    ),
    inputs=(InputSpec(name="x", dims=("N", 256, "L")),),
    causal_axis="L",
    receptive_field=4,
    notes=(
        "out[n, o, t] = sum over c, k of weight[o, c, k] * x[n, c, t - (K - 1 - k) * dilation]: tap 0 is the oldest "
        "sample, tap K - 1 the present one. The padded copy of x that the reference makes is not part of the contract."
    ),
)


class Model(nn.Module):
    """A convolution whose output at t depends on inputs up to t."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1) -> None:
        super().__init__()
        self.causal_padding = (kernel_size - 1) * dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in_channels, L) to (N, out_channels, L)."""
        out: torch.Tensor = self.conv(functional.pad(x, (self.causal_padding, 0)))
        return out


batch_size = 32
in_channels = 256
out_channels = 256
seq_len = 8192
kernel_size = 4
dilation = 1


def get_inputs() -> list[torch.Tensor]:
    """One input on the benchmark shape of the `cuda` target."""
    return [torch.randn(batch_size, in_channels, seq_len)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [in_channels, out_channels, kernel_size, dilation]
