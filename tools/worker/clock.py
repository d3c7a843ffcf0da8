"""Times one call on the device, with handles taken before any candidate is imported."""

import time

import torch

_now_ns = time.perf_counter_ns
LAUNCH_COVER_CYCLES = 1_500_000
"""The GPU spins this long (some 0.8 ms) before the first mark, so that what follows is queued when it gets there and
the time holds no gap caused by the host. At 0.2 ms an eager conv + GroupNorm of 69 us was seen to take 108."""


class DeviceClock:
    """Nanoseconds between two marks: events on a GPU, the monotonic clock on the host."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._started_ns = 0
        if self._cuda:
            self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._record = torch.cuda.Event.record
            self._elapsed = torch.cuda.Event.elapsed_time
            self._synchronize = torch.cuda.synchronize
            self._spin = torch.cuda._sleep

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        if self._cuda:
            self._synchronize()

    def start(self) -> None:
        """Set the first mark."""
        if self._cuda:
            self._spin(LAUNCH_COVER_CYCLES)  # type: ignore[no-untyped-call]
            self._record(self._start)
        else:
            self._started_ns = _now_ns()

    def stop(self) -> int:
        """Set the second mark, wait for the whole device, and return the nanoseconds between the two."""
        if self._cuda:
            self._record(self._end)
            self._synchronize()
            return round(float(self._elapsed(self._start, self._end)) * 1e6)
        return _now_ns() - self._started_ns


class CacheFlush:
    """Reads a buffer larger than the caches. Reading leaves no dirty lines whose write-back a timed call would pay."""

    def __init__(self, device: str, size_bytes: int) -> None:
        # Of floats: the host adds up whole numbers fifty times more slowly.
        self._buffer = torch.ones(max(1, size_bytes // 4), dtype=torch.float32, device=device)
        self._sum = torch.sum

    def run(self) -> None:
        """Displace whatever the caches hold."""
        self._sum(self._buffer)
