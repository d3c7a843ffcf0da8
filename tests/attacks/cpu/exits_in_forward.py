"""Ends its process with status 0 in the first call.

Expected: no_result
Seen: gpu-mode/pygpubench, pull request 15; field report R18
Task: causal_silu
"""

import os

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        os._exit(0)
