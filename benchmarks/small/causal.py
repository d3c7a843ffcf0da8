"""A KernelBench problem for comparing strategies: a causal Conv1d so narrow that an evaluation takes a second."""

import torch
from torch import nn
from torch.nn import functional


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


def get_inputs() -> list[torch.Tensor]:
    """One input."""
    return [torch.randn(2, 32, 1000)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [32, 48, 4, 2]
