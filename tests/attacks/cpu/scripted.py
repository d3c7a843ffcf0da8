"""Lets PyTorch compute in a TorchScript trace.

Expected: library_compute
Seen: variant of field list H16
Task: causal_silu
"""

import warnings

import torch
from torch import nn


def composed(x, weight, bias):
    padded = torch.constant_pad_nd(x, [weight.size(2) - 1, 0])
    return torch.nn.functional.silu(torch.conv1d(padded, weight, bias, groups=32))


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    scripted = torch.jit.trace(composed, (torch.randn(2, 32, 40), torch.randn(32, 1, 16), torch.randn(32)))


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return scripted(x, self.conv.weight, self.conv.bias)
