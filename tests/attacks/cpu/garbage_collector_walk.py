"""Looks through all objects of the process for the expected output and copies it.

Expected: incorrect
Seen: gpu-mode/pygpubench, pull requests 7 and 23
Task: causal_silu
"""

import gc

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        out = torch.zeros_like(x)
        for found in gc.get_objects():
            if type(found) is torch.Tensor and found is not x and found.shape == x.shape:
                out.copy_(found)
        return out
