"""Calls itself until the interpreter gives up.

Expected: crashed
Seen: variant of field report R25
Task: causal_silu
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return self.forward(x)
