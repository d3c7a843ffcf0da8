"""Whether the host's processors had enough for all that wanted them, as the kernel accounts for it."""

import time
from pathlib import Path

_PRESSURE = Path("/proc/pressure/cpu")


class CpuPressure:
    """The share of the time since its making in which something that could run had to wait for a processor.

    Source: the kernel's Documentation/accounting/psi.rst; `total` of the line `some`, in microseconds.
    """

    def __init__(self) -> None:
        self._waited_us = _waited_us()
        self._started = time.monotonic()

    def share(self) -> float | None:
        """From 0 to 1; None where the kernel does not account for it."""
        now = _waited_us()
        if now is None or self._waited_us is None:
            return None
        return min(1.0, (now - self._waited_us) / 1e6 / max(1e-9, time.monotonic() - self._started))


def _waited_us() -> int | None:
    try:
        line = _PRESSURE.read_text().splitlines()[0]
        return int(line.rsplit("total=", 1)[1])
    except (OSError, ValueError, IndexError):
        return None
