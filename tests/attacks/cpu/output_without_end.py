"""Returns a list that holds itself.

Expected: crashed
Seen: variant of SOL-ExecBench evil_lazy_output
Task: causal_silu
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        out = []
        out.append(out)
        return out
