"""Answers NaN everywhere, which passes where NaN is equal to everything.

Expected: incorrect
Seen: gpu-mode/pygpubench, pull requests 7 and 15; field list H13 and H41; field report R17
Task: causal_silu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.full_like(x, float("nan"))
