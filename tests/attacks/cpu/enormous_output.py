"""Returns an expanded tensor of a million gibibytes.

Expected: incorrect
Seen: variant of field list H44
Task: causal_silu
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return x.new_zeros(1).expand(1 << 20, 1 << 28)
