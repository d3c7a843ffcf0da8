"""Looks through the callers' variables for the expected output and returns it.

Expected: incorrect
Seen: gpu-mode/pygpubench, pull request 23; field list H12
Task: causal_silu
"""

import sys

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        frame = sys._getframe(1)
        while frame is not None:
            for found in frame.f_locals.values():
                if isinstance(found, torch.Tensor) and found is not x and found.shape == x.shape:
                    return found.clone()
            frame = frame.f_back
        return torch.zeros_like(x)
