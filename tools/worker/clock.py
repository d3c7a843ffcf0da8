"""Times one call on the device, with handles taken before any candidate is imported."""

import ctypes
import time

import torch

_now_ns = time.perf_counter_ns
_WAIT_GEQ = 0
"""CU_STREAM_WAIT_VALUE_GEQ: go on once the word is at least the value."""


class ClockError(RuntimeError):
    """The driver refuses what the clock needs; the text names the call and its CUresult."""


class Gate:
    """A word of host memory that the judge sets; work queued behind it starts when the judge says so.

    Everything a call launches is queued before the judge hands over the inputs, so neither the time by the device's
    events nor the judge's own holds a gap that is caused by launching.
    """

    def __init__(self, page: torch.Tensor) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._page = page
        registered = torch.cuda.cudart().cudaHostRegister(page.data_ptr(), page.numel(), 0)
        if int(registered):
            raise ClockError(f"cudaHostRegister answered {registered}")
        self._word = ctypes.c_uint64()
        self._check(
            self._driver.cuMemHostGetDevicePointer_v2(ctypes.byref(self._word), ctypes.c_void_p(page.data_ptr()), 0),
            "cuMemHostGetDevicePointer",
        )

    def wait(self, value: int) -> None:
        """Hold the current stream until the word is at least `value`."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._check(
            self._driver.cuStreamWaitValue32_v2(stream, self._word, ctypes.c_uint32(value), _WAIT_GEQ),
            "cuStreamWaitValue32",
        )

    def close(self) -> None:
        """Give the page back; nothing may be held by it any more."""
        torch.cuda.cudart().cudaHostUnregister(self._page.data_ptr())

    @staticmethod
    def _check(status: int, call: str) -> None:
        if status:
            raise ClockError(f"{call} answered CUresult {status}")


class DeviceClock:
    """Nanoseconds between two marks: events on a GPU, the monotonic clock on the host."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._started_ns = 0
        self._ended_ns = 0
        if self._cuda:
            self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._record = torch.cuda.Event.record
            self._elapsed = torch.cuda.Event.elapsed_time
            self._synchronize = torch.cuda.synchronize

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        if self._cuda:
            self._synchronize()

    def start(self) -> None:
        """Set the first mark."""
        if self._cuda:
            self._record(self._start)
        else:
            self._started_ns = _now_ns()

    def end(self) -> None:
        """Set the second mark."""
        if self._cuda:
            self._record(self._end)
        else:
            self._ended_ns = _now_ns()

    def read(self) -> int:
        """Wait for the whole device, and return the nanoseconds between the two marks."""
        self.synchronize()
        if self._cuda:
            return round(float(self._elapsed(self._start, self._end)) * 1e6)
        return self._ended_ns - self._started_ns
