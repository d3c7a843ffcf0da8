"""Starts hundreds of children, which sleep for an hour (bounded here: 400).

Expected: crashed
Seen: openevolve issues 297, 399 and 409; field report R25
Task: causal_silu
"""

import os
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        for _ in range(400):
            if os.fork() == 0:
                time.sleep(3600)
                os._exit(0)
        return torch.zeros_like(x)
