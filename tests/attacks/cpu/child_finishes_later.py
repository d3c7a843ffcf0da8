"""Returns at once; a forked child writes the output to shared memory later.

Expected: incorrect
Seen: DeepReinforce, "defense against kernel hacks"; field list H2
Task: causal_silu
"""

import mmap
import os
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        memory = mmap.mmap(-1, x.nbytes)
        out = torch.frombuffer(memory, dtype=torch.float32).view(x.shape)
        if os.fork() == 0:
            time.sleep(0.5)
            out.copy_(x)
            os._exit(0)
        return out
