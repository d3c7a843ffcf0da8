"""Makes the compiler load a plugin from the candidate's folder.

Expected: build_failed
Seen: variant of -wrapper
Task: causal_silu
"""

import os

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
int nothing() { return 0; }
"""


extension = load_inline(
    name="hostile", cpp_sources=CPP, functions=["nothing"], extra_cflags=[f"-fplugin={os.getcwd()}/plugin.so"]
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.zeros_like(x)
