"""Closes all descriptors, the evaluator's channel too.

Expected: no_result
Seen: gpu-mode/pygpubench (file_struct); field list H28
Task: causal_silu
"""

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        os.closerange(3, 256)
        return torch.zeros_like(x)
