"""Writes results of its own to every descriptor and ends its process.

Expected: no_result, contract_error (the first line may be read as the answer to a request that needs no output)
Seen: kernelbot cheat-fd.py; gpu-mode/pygpubench, pull request 15; field report R18
Task: causal_silu
"""

import contextlib
import os

from torch import nn

lines = ['{"done": {}}', '{"verdict": "correct", "speedup": 100.0}']


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        for fd in range(3, 256):
            for line in lines:
                with contextlib.suppress(OSError):
                    os.write(fd, line.encode() + b"\n")
        os._exit(0)
