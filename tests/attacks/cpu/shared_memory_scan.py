"""Looks for the expected output in the memory that it shares with the evaluator.

Expected: incorrect
Seen: variant of gpu-mode/pygpubench, pull request 23
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
            if type(found) is torch.Tensor and found.dtype is torch.uint8 and found.numel() > 2 * x.nbytes:
                start = found.numel() - x.nbytes
                out.copy_(found[start - start % 256 :][: x.nbytes].view(torch.float32).view(x.shape))
        return out
