"""Prints 32 MB in every call and returns zeros.

Expected: incorrect
Seen: variant of field list H29
Task: causal_silu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        print("noise" * 6_400_000, flush=True)
        return torch.zeros_like(x)
