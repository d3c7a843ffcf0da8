"""How much of this machine the processes of one group take: disk, resident memory, processes, threads.

The kernel's own limits are for one file or one process each, so a candidate that writes many files or forks many
processes stays below every one of them; RLIMIT_NPROC counts a user's processes, the caller's other work among them,
and does not bind root. So the judge looks at the sums itself, and ends what exceeds a `Budget`.

NOT counted: files that are mapped, unlinked and closed, and shared anonymous memory that its maker has let go of
(MADV_DONTNEED) but not unmapped; neither lies below a folder or is resident.
"""

import contextlib
import errno
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BLOCK_BYTES = 512
"""The unit of `st_blocks`."""
_THREADS, _RESIDENT = 17, 21
"""Places in /proc/PID/stat after the name in brackets (proc(5) counts from 1: fields 20 and 24)."""
FOLDER_LIMIT_BYTES = 512 << 20
_OUT_OF_REACH_BYTES = 1 << 60
PROCESS_LIMIT = 256
THREAD_LIMIT = 512 + 8 * (os.cpu_count() or 1)
"""PyTorch, OpenMP and BLAS start one for each processor, each of them. To stop a worker takes time for each thread, and
the host has a limit of them, which others share."""
MEMORY_VARIABLE = "KERNELWRIGHT_MEMORY_BYTES"
"""A pool divides the host's memory among its builders, lest candidates of several take all of it together."""
MEMORY_SHARE = 0.75
"""The share of the host's memory that a worker may take."""


@dataclass(frozen=True)
class Usage:
    """What a process group takes."""

    disk_bytes: int
    """Files in its folder, and open ones that have no name any more (memory files too)."""
    resident_bytes: int
    processes: int
    threads: int


@dataclass(frozen=True)
class Budget:
    """What a process group may take."""

    memory_bytes: int
    disk_bytes: int = FOLDER_LIMIT_BYTES
    processes: int = PROCESS_LIMIT
    threads: int = THREAD_LIMIT
    """Of all its processes together."""

    def beside(self, shared_bytes: int) -> "Budget":
        """The same with memory that the judge shares with the group: what is resident of it counts for the group."""
        return replace(self, memory_bytes=self.memory_bytes + shared_bytes)


class Excess(NamedTuple):
    """What exceeds a budget."""

    of: Literal["memory", "files", "processes", "threads"]
    message: str
    """The limit and the use, to follow the name of what took it."""


def host_memory_bytes() -> int:
    """The host's memory, or what the control group of a container, or `MEMORY_VARIABLE`, leaves of it."""
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    for place in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int((Path("/sys/fs/cgroup") / place).read_text()))
    return min(memory, int(os.environ.get(MEMORY_VARIABLE, memory)))


def memory_limit_bytes() -> int:
    """The most that a worker, with all it started, may have resident; on the host target also what it may allocate."""
    return int(MEMORY_SHARE * host_memory_bytes())


def compiler_budget() -> Budget:
    """What a compiler may take: a precompiled header of PyTorch is some hundred megabytes."""
    return Budget(memory_limit_bytes(), disk_bytes=4 * FOLDER_LIMIT_BYTES)


FileIdentity = tuple[int, int]
"""Device and inode."""


def identity_of(descriptor: int) -> FileIdentity:
    """Which file a descriptor has opened."""
    told = os.fstat(descriptor)
    return told.st_dev, told.st_ino


def usage(group: int, folder: Path, budget: Budget, ignored: FileIdentity | None = None) -> Usage:
    """Add up what a process group takes now; processes that end meanwhile count for nothing.

    `ignored` is an open file without a name that is not the group's own.

    Pages that several processes share count once for each of them, unless that exceeds the budget: only then are the
    processes asked for their proportional shares, which takes the kernel milliseconds a process.
    """
    found = {pid: told for pid in members(group) if (told := _stat(pid)) is not None}
    resident = sum(each.pages for each in found.values()) * _PAGE_BYTES
    if resident > budget.memory_bytes:
        resident = sum(_proportional_bytes(pid, each.pages * _PAGE_BYTES) for pid, each in found.items())
    # Beyond the limit the number is fault enough, and the descriptors of thousands would take long to read.
    held = _nameless_bytes(list(found), ignored) if len(found) <= budget.processes else 0
    threads = sum(each.threads for each in found.values())
    return Usage(_folder_bytes(folder) + held, resident, len(found), threads)


def members(group: int) -> list[int]:
    """The processes of a group."""
    found = []
    # Plain calls: machines with many processors have hundreds of processes, and workers are looked at all the time.
    with os.scandir("/proc") as processes:
        numbers = [int(entry.name) for entry in processes if entry.name.isdecimal()]
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(number) == group:
                found.append(number)
    return found


class _Stat(NamedTuple):
    threads: int
    pages: int
    """Resident ones."""


def _stat(pid: int) -> _Stat | None:
    """What the kernel tells of a process; None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Stat(int(fields[_THREADS]), int(fields[_RESIDENT]))


def _proportional_bytes(pid: int, otherwise: int) -> int:
    """A process's share of the memory it has resident; `otherwise` where the kernel does not tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except ProcessLookupError:
        return 0
    except OSError:
        return otherwise
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _nameless_bytes(pids: list[int], ignored: FileIdentity | None) -> int:
    """Bytes of open files without a name; each counts once, however many processes hold it."""
    found: dict[FileIdentity, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    told = descriptor.stat()
                    if stat.S_ISREG(told.st_mode) and told.st_nlink == 0:
                        found[told.st_dev, told.st_ino] = told.st_blocks * _BLOCK_BYTES
    return sum(size for identity, size in found.items() if identity != ignored)


def _folder_bytes(folder: Path) -> int:
    """What files below a folder take. One that lies too deep for a path to reach it counts as more than any budget."""
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return _OUT_OF_REACH_BYTES
    return total


def excess(taken: Usage, budget: Budget) -> Excess | None:
    """What is too much, memory first; None where all is within the budget."""
    if taken.resident_bytes > budget.memory_bytes:
        message = f"had {_mib(taken.resident_bytes)} of memory resident in {taken.processes} processes; the limit is"
        return Excess("memory", f"{message} {_mib(budget.memory_bytes)}")
    if taken.disk_bytes > budget.disk_bytes:
        message = f"held {_mib(taken.disk_bytes)} in files; the limit for all of them together is"
        return Excess("files", f"{message} {_mib(budget.disk_bytes)}")
    if taken.processes > budget.processes:
        return Excess("processes", f"ran {taken.processes} processes; the limit is {budget.processes}")
    if taken.threads > budget.threads:
        return Excess("threads", f"ran {taken.threads} threads; the limit is {budget.threads}")
    return None


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"
