"""Leaves a pipe in the place of the built library, on which the evaluator would wait for ever.

Expected: build_failed
Seen: found in this project: a review by a hostile author
Task: causal_silu
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
int nothing() { return 0; }
"""


extension = load_inline(
    name="hostile",
    cpp_sources=CPP,
    functions=["nothing"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-wrapper", "/bin/sh,-c,rm -f extension.so; mkfifo extension.so"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.zeros_like(x)
