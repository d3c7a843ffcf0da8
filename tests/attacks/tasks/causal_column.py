"""A causal depthwise convolution of columns, (N, C, L, 1), then SiLU: causal_silu with a last dimension of one."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """Padding of kernel_size - 1 zeros before the first step, one filter a channel, SiLU."""

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, (kernel_size, 1), groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, L, 1) to the same shape."""
        padding = self.conv.kernel_size[0] - 1
        return functional.silu(self.conv(functional.pad(x, (0, 0, padding, 0))))


batch_size = 32
channels = 4
seq_len = 2048
kernel_size = 24


def get_inputs() -> list[torch.Tensor]:
    """One input."""
    return [torch.randn(batch_size, channels, seq_len, 1)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [channels, kernel_size]
