"""Ends its process with status 0 as soon as it is imported.

Expected: no_result
Seen: gpu-mode/pygpubench, pull request 15; field report R18
Task: causal_silu
"""

import os

import torch
from torch import nn

os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.zeros_like(x)
