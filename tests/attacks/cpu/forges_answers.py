"""Answers the evaluator's requests itself, with the right form and no values.

Expected: input_mutated
Seen: gpu-mode/pygpubench, pull request 23 (pipe_interpose); field list H28
Task: causal_silu
"""

import sys

from torch import nn


def answer(self, request):
    shape = [list(slot.shape) for slot in getattr(request, "inputs", ())]
    if not shape:
        return {"requested": 1}
    names = ["output", *(f"input {index}" for index in range(len(shape)))]
    written = [
        {"name": name, "dtype": "float32", "shape": shape[0], "offset": request.region.offset + 256} for name in names
    ]
    return {"ns": 1000, "outputs": written[:1], "state": [], "inputs": written[1:], "computing": {}, "requested": 1}


sys.modules["tools.worker.session"].Session.handle = answer


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return x
