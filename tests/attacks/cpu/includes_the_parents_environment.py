"""Embeds the environment of the evaluator in its library with .incbin.

Expected: build_failed, incorrect (with bubblewrap the number is a process of the compiler's own namespace, if any)
Seen: variant of gpu-mode/pygpubench, pull request 15
Task: causal_silu
"""

import os

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
int nothing() { return 0; }
"""


CPP += f'asm(".incbin \\"/proc/{os.getppid()}/environ\\"");'
extension = load_inline(name="hostile", cpp_sources=CPP, functions=["nothing"])


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return torch.zeros_like(x)
