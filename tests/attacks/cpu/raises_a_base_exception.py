"""Raises an exception that no handler of Exception catches.

Expected: crashed
Seen: variant of field list H28
Task: causal_silu
"""

from torch import nn


class Silent(BaseException):
    pass


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        raise Silent("nothing to see")
