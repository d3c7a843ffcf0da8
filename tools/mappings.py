"""What executable memory of a process is a mapping of: read from outside, from /proc/PID/maps."""

import contextlib
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MappedFile = tuple[str, int]
"""Device, as the kernel writes it there, and inode. On some file systems (overlayfs) `stat` says another device."""
_NO_INODE = 0
_FIELDS = 5
"""Range, rights, offset, device, inode; what follows is the path."""


class Mapping(NamedTuple):
    """One range of a process's memory that may be executed."""

    start: int
    end: int
    offset: int
    """Where in the file it starts."""
    file: MappedFile | None
    """None for memory of no file."""
    path: str
    """What the kernel calls it; of a file that a candidate has made, a name of its choice."""


class Mappings:
    """The executable ranges of one process at one moment; raises OSError where the process or the right to read is not
    there."""

    def __init__(self, pid: int | str) -> None:
        self.all = _executable(Path(f"/proc/{pid}/maps").read_bytes())
        self._starts = [each.start for each in self.all]

    def at(self, address: int) -> Mapping | None:
        """The range that holds an address."""
        place = bisect_right(self._starts, address) - 1
        return self.all[place] if place >= 0 and address < self.all[place].end else None


def _executable(text: bytes) -> list[Mapping]:
    found = []
    for line in text.splitlines():
        fields = line.split(None, _FIELDS)
        if b"x" not in fields[1]:
            continue
        start, end = (int(part, 16) for part in fields[0].split(b"-"))
        device, inode = fields[3].decode(), int(fields[4])
        path = fields[_FIELDS].decode("utf-8", "replace") if len(fields) > _FIELDS else ""
        file = None if inode == _NO_INODE else (device, inode)
        found.append(Mapping(start, end, int(fields[2], 16), file, path))
    return found


def opened(descriptor: int) -> MappedFile:
    """How a file of memory, that a descriptor has opened, is named where it is mapped."""
    told = os.fstat(descriptor)
    return f"{os.major(told.st_dev):02x}:{os.minor(told.st_dev):02x}", told.st_ino


def as_mapped(paths: Iterable[Path]) -> dict[MappedFile, Path]:
    """Files by how they are named where they are mapped, found out by mapping them here; what cannot be is left out."""
    with contextlib.ExitStack() as held:
        starts: dict[str, Path] = {}
        for path in paths:
            with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
                held.enter_context(mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC))
                starts[str(path.resolve())] = path
        here = Mappings("self").all
    return {each.file: starts[each.path] for each in here if each.file is not None and each.path in starts}
