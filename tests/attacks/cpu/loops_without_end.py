"""Never returns from a loop in Python.

Expected: timeout
Seen: openevolve issues 297, 399 and 409; field report R25
Task: causal_silu
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        while True:
            x = x.clone()
