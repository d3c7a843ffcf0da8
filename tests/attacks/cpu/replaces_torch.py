"""Replaces PyTorch's comparisons, and the module itself, and returns zeros.

Expected: incorrect
Seen: gpu-mode/pygpubench (replace_torch); AgentKernelArena, pull request 36; field list H33 and H34
Task: causal_silu
"""

import sys
import types

import torch
from torch import nn

torch.equal = torch.allclose = torch.isclose = lambda *arguments, **options: True
torch.Tensor.__eq__ = lambda self, other: True
torch.testing.assert_close = lambda *arguments, **options: None


class Everything(types.ModuleType):
    def __getattr__(self, name):
        return getattr(torch, name)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        sys.modules["torch"] = Everything("torch")
        return torch.zeros_like(x)
