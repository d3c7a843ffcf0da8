"""Takes windows of the input as a view and multiplies matrices.

Expected: library_compute
Seen: ScalingIntelligence/KernelBench checker; field list H16
Task: causal_silu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        padded = x.new_zeros(x.size(0), x.size(1), x.size(2) + self.conv.kernel_size[0] - 1)
        padded[..., -x.size(2) :] = x
        windows = padded.unfold(2, self.conv.kernel_size[0], 1)
        sums = torch.einsum("nclk,ck->ncl", windows, self.conv.weight[:, 0])
        return nn.functional.silu(sums + self.conv.bias[:, None])
