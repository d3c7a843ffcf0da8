"""The GPU in use as NVIDIA's management library (NVML) sees it: its clocks, what limits them, who computes there."""

import ctypes

from tools.gpus import visible_gpus
from tools.results import CardState

_SM, _MEMORY = 1, 2
"""nvmlClockType_t."""
SAME_CLOCK = 0.01
"""Clocks go in steps of 15 MHz, less than this share of those under work (1980 MHz on an H200)."""


class Card:
    """The first GPU that this process may use; make one with `card_in_use`."""

    def __init__(self, nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._nvml = nvml
        self._handle = handle
        self._warm_mhz: int | None = None

    def state(self, own_processes: int) -> CardState:
        """Clocks, throttle reasons and other compute processes.

        Args:
            own_processes: how many processes of ours compute on it now.
        """
        reasons = ctypes.c_ulonglong()
        failed = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(reasons))
        count = ctypes.c_uint(0)
        # Asking with no room answers how many there are: 0 with none running, NVML_ERROR_INSUFFICIENT_SIZE otherwise.
        self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), None)
        return CardState(
            sm_clock_mhz=self.sm_clock_mhz(),
            memory_clock_mhz=self._clock_mhz(_MEMORY),
            throttle_reasons=None if failed else reasons.value,
            other_processes=max(0, count.value - own_processes),
        )

    def note_warm(self) -> None:
        """The clock of the multiprocessors is now what it comes to under work."""
        self._warm_mhz = self.sm_clock_mhz()

    def is_warm(self) -> bool:
        """Whether that clock is what it was when it was noted last; no where it never was."""
        now_mhz = None if self._warm_mhz is None else self.sm_clock_mhz()
        if now_mhz is None or self._warm_mhz is None:
            return False
        return abs(now_mhz - self._warm_mhz) <= SAME_CLOCK * self._warm_mhz

    def sm_clock_mhz(self) -> int | None:
        """The clock of the multiprocessors."""
        return self._clock_mhz(_SM)

    def _clock_mhz(self, kind: int) -> int | None:
        value = ctypes.c_uint()
        return None if self._nvml.nvmlDeviceGetClockInfo(self._handle, kind, ctypes.byref(value)) else value.value


def card_in_use() -> Card | None:
    """None without a GPU or NVML."""
    gpus = visible_gpus()
    if not gpus:
        return None
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2():
        return None
    handle = ctypes.c_void_p()
    # By its number it would be another GPU wherever CUDA_VISIBLE_DEVICES renumbers them.
    if nvml.nvmlDeviceGetHandleByUUID(gpus[0].uuid.encode(), ctypes.byref(handle)):
        return None
    return Card(nvml, handle)
