"""A KernelBench problem that takes microseconds: a depthwise Conv1d over few channels."""

import torch
from torch import nn


class Model(nn.Module):
    """Depthwise, kernel 3, one step of padding."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, L) to the same shape."""
        out: torch.Tensor = self.conv(x)
        return out


def get_inputs() -> list[torch.Tensor]:
    """One input."""
    return [torch.randn(2, 8, 256)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [8]
