"""Whether a process group that was stopped stands still: every thread stopped, and no processor time used afterwards.

The signal alone is no proof. A thread that has the kernel work for it (clearing gigabytes of memory, copying a file)
stops only when that is done, and a timer of the kernel can send the signal that lets a stopped process go on. Both
would take time from the baseline that is measured meanwhile, or let a candidate work while its own clock stands.

The clocks are the kernel's, of a whole process each, and are read from outside. NOT seen: processes that have left the
group, which seccomp refuses; what a GPU does.
"""

import contextlib
import os
import signal
import time

from tools.usage import members

_SETTLE_S = 0.0001
_TICK_S = 0.02
"""While a thread runs, its time is added to the clock every 1 to 10 ms."""
WOKEN, STOPS_A_WAKE = 2, 500
"""So often a stopped group may have used processor time, and once more for each so many stops: on a virtual machine
whose processors wait for those of the host, a thread that stops may be counted late, and a baseline's worker is stopped
for every candidate of a session. Medians are moved by many calls only."""
STANDSTILL_S = 10.0
"""The kernel gives back some gigabytes a second, which a stop does not interrupt."""
WORKS_ON = (
    "the worker worked after it was stopped, when no clock runs for it: something in the candidate wakes it, or has "
    f"kept the kernel at work for {STANDSTILL_S:.0f} s. Have all work done when a call returns."
)
LOOKING_SHARE = 0.05
"""Looking for the processes of a group takes a millisecond on a machine with hundreds, and every timed call stops one
twice: it is done again once it takes no more than this share of the time."""
_STOPPED = frozenset(b"TtZXx")
"""States of /proc/PID/task/TID/stat: stopped, traced, dead."""
_STAT_BYTES = 512
_PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED of include/linux/posix-timers.h: all threads of a process, the ended ones too."""


class Standstill:
    """The processes of one group from when they stood still, each with the processor time that it had used by then."""

    def __init__(self, pids: list[int]) -> None:
        self._used = {pid: _used_ns(pid) for pid in pids}

    def used_since_ns(self) -> int:
        """Processor time that was used since; 0 where the group stood still. What was started since shows in its
        parent's time."""
        return sum(max(0, _used_ns(pid) - before) for pid, before in self._used.items())


class Standing:
    """Whether one group stands still each time that it is stopped."""

    def __init__(self, group: int) -> None:
        self._group = Group(group)
        self._now: Standstill | None = None
        self._stops = 0
        self._woken = 0

    def begin(self) -> bool:
        """Stop the group; False where it works on."""
        self._stops += 1
        self._now = brought_to_a_standstill(self._group, STANDSTILL_S)
        return self._now is not None

    def end(self) -> bool:
        """To be called before the group may go on; False where it has gone on by itself, this time and before."""
        now, self._now = self._now, None
        self._woken += now is not None and now.used_since_ns() > 0
        return self._woken <= WOKEN + self._stops // STOPS_A_WAKE


class Group:
    """The processes of a group as of a little while ago.

    A signal to the group meets the others, too; whether one that was started since stands still is seen a little later.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._pids: list[int] = []
        self._look_again_s = 0.0

    def pids(self) -> list[int]:
        """Their numbers."""
        began = time.monotonic()
        if began >= self._look_again_s:
            self._pids = members(self.number)
            took_s = time.monotonic() - began
            self._look_again_s = began + took_s / LOOKING_SHARE
        return self._pids


def brought_to_a_standstill(group: Group, timeout_s: float) -> Standstill | None:
    """Stop a group and wait until it stands still; None where it works on for all of the time, or wakes by itself."""
    deadline = time.monotonic() + timeout_s
    seen_stopped: set[int] = set()
    woken = 0
    while woken <= WOKEN and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group.number, signal.SIGSTOP)
        stopped = {pid: stands_still(pid) for pid in group.pids()}
        found = Standstill(group.pids())
        # A thread counts as stopped some microseconds before it leaves its processor, and only then is all of its time
        # in the clock.
        time.sleep(_SETTLE_S)
        if all(stopped.values()) and not found.used_since_ns():
            return found
        woken += any(pid in seen_stopped and not stands for pid, stands in stopped.items())
        seen_stopped |= {pid for pid, stands in stopped.items() if stands}
    if woken > WOKEN:
        return None
    found = Standstill(members(group.number))
    time.sleep(_TICK_S)
    # A thread that waits in the kernel for ever, or a kernel that tells no such states, is not at work.
    return None if found.used_since_ns() else found


def _used_ns(pid: int) -> int:
    """Processor time of a process with all its threads; 0 where it is gone or the kernel does not tell."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return 0


def stands_still(pid: int) -> bool:
    """Whether every thread of a process is stopped, or it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), os.scandir(f"/proc/{pid}/task") as threads:
        return all(_state(f"{thread.path}/stat") in _STOPPED for thread in threads)
    return True


def _state(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return ord("X")
    try:
        return os.read(descriptor, _STAT_BYTES).rpartition(b") ")[2][0]
    except ProcessLookupError:
        return ord("X")
    finally:
        os.close(descriptor)
