"""Has the compiler leave folders nested deeper than Python's own recursion goes, and than a path can name.

Expected: build_failed
Seen: found in this project: a review by a hostile author (the evaluator itself ended)
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
    extra_ldflags=["-wrapper", "/bin/sh,-c,i=0; while [ $i -lt 3000 ]; do mkdir d; cd d; i=$((i+1)); done"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.zeros_like(x)
