"""Recurses where the interpreter does not count.

Expected: crashed
Seen: variant of field report R25
Task: causal_silu
"""

import sys

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        sys.setrecursionlimit(1 << 30)
        nested = x
        for _ in range(1_000_000):
            nested = [nested]
        return repr(nested)
