"""Asks for an exbibyte.

Expected: out_of_memory
Seen: openevolve issue 297
Task: causal_silu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.empty(1 << 58)
