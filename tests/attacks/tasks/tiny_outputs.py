"""As causal_silu, times 1e-24: outputs whose squares float32 cannot hold."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """Left padding of kernel_size - 1 zeros, one filter a channel, SiLU, and a factor that leaves little."""

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, L) to the same shape."""
        padding = self.conv.kernel_size[0] - 1
        return functional.silu(self.conv(functional.pad(x, (padding, 0)))) * 1e-24


batch_size = 4
channels = 32
seq_len = 8192
kernel_size = 16


def get_inputs() -> list[torch.Tensor]:
    """One input."""
    return [torch.randn(batch_size, channels, seq_len)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [channels, kernel_size]
