"""Fills every tensor of the process with NaN at import, and answers NaN.

Expected: incorrect
Seen: gpu-mode/pygpubench, pull request 7; field report R17
Task: causal_silu
"""

import gc

import torch
from torch import nn

for found in gc.get_objects():
    if isinstance(found, torch.Tensor) and found.is_floating_point():
        found.detach().fill_(float("nan"))


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.full_like(x, float("nan"))
