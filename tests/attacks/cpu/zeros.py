"""Returns zeros, which pass where outputs are smaller than an absolute tolerance.

Expected: incorrect
Seen: KernelBench issue 165; field list H39; field report R1
Task: causal_silu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.zeros_like(x)
