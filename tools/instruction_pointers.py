"""Where the threads of a stopped process group were at work, read from outside.

Linux tells it of a thread that has stopped in /proc/PID/task/TID/syscall: `-1 SP PC` of one that was computing, the
number of the call of one that waits in the kernel. Neither the process nor a debugger has a hand in that.

NOT seen: threads that the kernel works for, which is no computing; a process group that was left.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.standstill import stands_still
from tools.usage import members

STOP_S = 0.02
"""How long a group may take to stop; a thread that the kernel works for may take longer, and is left out."""
_COMPUTING = "-1"
_POINTER = 2
"""The place of the instruction pointer in such a line."""


class Point(NamedTuple):
    """A thread that was computing."""

    pid: int
    address: int


class Look(NamedTuple):
    """What one stop has shown."""

    points: tuple[Point, ...]
    hidden: bool
    """Whether a process did not let itself be looked at."""


def can_be_read(pid: int) -> bool:
    """Whether this kernel tells, and this process may ask, what a process's threads are at."""
    try:
        return bool(Path(f"/proc/{pid}/task/{pid}/syscall").read_text()) and bool(
            Path(f"/proc/{pid}/maps").read_bytes()
        )
    except OSError:
        return False


@contextlib.contextmanager
def stopped(group: int) -> Iterator[list[int]]:
    """Stop a group for the time of the block, which is given its processes."""
    try:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGSTOP)
        pids = members(group)
        deadline = time.monotonic() + STOP_S
        while not all(map(stands_still, pids)) and time.monotonic() < deadline:
            time.sleep(0)
        yield pids
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGCONT)


def look(pids: list[int]) -> Look:
    """Where the threads of stopped processes compute; those that end meanwhile are at nothing."""
    points: list[Point] = []
    hidden = False
    for pid in pids:
        try:
            with os.scandir(f"/proc/{pid}/task") as threads:
                paths = [thread.path for thread in threads]
            points += [Point(pid, address) for path in paths if (address := _computing_at(path)) is not None]
        except PermissionError:
            hidden = True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return Look(tuple(points), hidden)


def _computing_at(thread: str) -> int | None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"{thread}/syscall").read_text().split()
        if fields[:1] == [_COMPUTING]:
            return int(fields[_POINTER], 16)
    return None
