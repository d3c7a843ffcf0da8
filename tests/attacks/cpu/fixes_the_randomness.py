"""Replaces the random functions of its process by constant ones.

Expected: incorrect
Seen: gpu-mode/kernelbot, cheat-rng.py; field list H22
Task: causal_silu
"""

import os
import random

import torch
from torch import nn

torch.manual_seed(0)
torch.randn = torch.rand = lambda *shape, **options: torch.zeros(*shape)
torch.randn_like = torch.zeros_like
torch.manual_seed = lambda seed: None
random.random = lambda: 0.5
os.urandom = bytes


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.zeros_like(x)
