"""Raises SystemExit(0) in the first call.

Expected: no_result
Seen: kernelbench.com, trusted_entrypoint.py; field list H28
Task: causal_silu
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        raise SystemExit(0)
