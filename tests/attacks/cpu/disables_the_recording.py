"""Leaves PyTorch's dispatch modes while it lets PyTorch compute.

Expected: library_compute
Seen: variant of field list H16
Task: causal_silu
"""

from torch import nn
from torch.utils._python_dispatch import _disable_current_modes


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        padded = x.new_zeros(x.size(0), x.size(1), x.size(2) + self.conv.kernel_size[0] - 1)
        padded[..., -x.size(2) :] = x
        with _disable_current_modes():
            return nn.functional.silu(self.conv(padded))
