"""What a GPU's clock shows where nothing is timed, so that it can be taken off every sample.

Two events with nothing between them are a microsecond apart and more: on one H200 1.28 us, about as much as kernels of
1 to 42 us took longer by the events than by Nsight Compute (1.1 to 1.3 us; benchmarks/README.md).
"""

import mmap

import torch

from tools.worker.clock import DeviceClock, Gate
from tools.worker.messages import GATE_BYTES

CALLS, FIRST_CALLS = 40, 8
"""Of so many, the first do not count."""


def empty_call_ns() -> int:
    """The median of what the GPU's clock shows for a call that does nothing, queued behind a gate as timed ones are."""
    page = torch.frombuffer(mmap.mmap(-1, GATE_BYTES), dtype=torch.uint8)
    gate, clock = Gate(page), DeviceClock("cuda")
    try:
        samples = []
        for number in range(1, FIRST_CALLS + CALLS + 1):
            gate.wait(number)
            clock.start()
            clock.end()
            page[:4].view(torch.int32).fill_(number)
            samples.append(clock.read())
    finally:
        # Whatever ended this early: what waits for the gate would hold its page, and the GPU, for ever.
        page[:4].view(torch.int32).fill_(FIRST_CALLS + CALLS)
        gate.close()
    return sorted(samples[FIRST_CALLS:])[CALLS // 2]
