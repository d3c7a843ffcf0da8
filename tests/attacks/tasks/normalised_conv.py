"""A Conv1d without bias that keeps the length, then GroupNorm: small, with statistics and an affine part to omit."""

import torch
from torch import nn


class Model(nn.Module):
    """A convolution and the normalisation of its output."""

    def __init__(self, in_channels: int, out_channels: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in_channels, L) to (N, out_channels, L)."""
        normalised: torch.Tensor = self.norm(self.conv(x))
        return normalised


batch_size = 4
in_channels = 32
out_channels = 32
groups = 4
seq_len = 4096


def get_inputs() -> list[torch.Tensor]:
    """One input."""
    return [torch.randn(batch_size, in_channels, seq_len)]


def get_init_inputs() -> list[int]:
    """The arguments of `Model`."""
    return [in_channels, out_channels, groups]
