"""Tends the cache: bounds it, takes away what dead processes left, and empties it; never what somebody uses."""

import contextlib
import fcntl
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.cache import IN_USE, claimed, workplace

Part = Literal["builds", "light", "precompiled", "inductor", "triton"]
MANY: tuple[Part, ...] = ("builds", "light", "precompiled")
"""Folders whose folders are entries."""
WHOLE: tuple[Part, ...] = ("inductor", "triton")
"""Folders that are an entry each: PyTorch's own caches, whose inner order is PyTorch's affair."""

SPARED_S = 600.0
"""So long after it was last asked for, a precompiled header stays: whoever got its path lets a compiler read it without
holding it, and compilers are stopped after 300 s."""
LOCKLESS_S = 3600.0
"""So long a folder stays that was made and not locked, which takes its maker some microseconds."""
PAUSE_S = 60.0
"""Between two tendings; looking at 20,000 builds takes 0.8 s."""
_BLOCK_BYTES = 512
"""The unit of `st_blocks`."""
_TENDED = "tended"
"""The file in the cache that is locked while it is tended; its time of change is the last time."""


@dataclass(frozen=True)
class Entry:
    """One thing that is kept."""

    part: Part
    path: Path
    size_bytes: int
    """What it takes on the disk."""
    last_used: float
    """Seconds since the epoch."""

    @property
    def in_use(self) -> bool:
        """Whether a process uses it, as far as can be told now."""
        return self.spared or _locked(self.path)

    @property
    def spared(self) -> bool:
        """Whether a compiler may be reading it."""
        return self.part == "precompiled" and time.time() - self.last_used < SPARED_S


@dataclass(frozen=True)
class Dropped:
    """What was taken away."""

    entries: int
    size_bytes: int


def entries(root: Path) -> list[Entry]:
    """All that is kept in the cache."""
    folders = [(part, folder) for part in MANY for folder in _folders(root / part) if not folder.name.startswith(".")]
    folders += [(part, root / part) for part in WHOLE if (root / part).is_dir()]
    found = []
    for part, folder in folders:
        # What another process takes away meanwhile is not kept any more.
        with contextlib.suppress(FileNotFoundError):
            found.append(Entry(part, folder, _disk_bytes(folder), _last_used(folder)))
    return found


def drop(path: Path) -> bool:
    """Take an entry out of the cache at once, whole. False where it is in use, gone, or cannot be moved: it stays."""
    try:
        with workplace(path.parent) as away:
            return _moved(path, away)
    except OSError:
        return False


def tend(root: Path, limit_bytes: int) -> Dropped:
    """Take away what dead processes left, then the least recently used entries, until the rest is within the limit."""
    remove_leftovers(root)
    kept = sorted(entries(root), key=lambda entry: entry.last_used)
    return _drop_until(kept, sum(entry.size_bytes for entry in kept) - limit_bytes)


def tend_now_and_then(root: Path, limit_bytes: int) -> None:
    """Tend the cache, unless that was done within the last minute or another process is at it."""
    mark = root / _TENDED
    before = mark.stat().st_mtime if mark.exists() else 0.0
    if 0 <= time.time() - before < PAUSE_S:
        return
    held = claimed(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if held is None:
        return
    try:
        os.utime(mark)
        tend(root, limit_bytes)
    finally:
        held.close()


def clear(root: Path) -> Dropped:
    """Take away everything that nobody uses."""
    remove_leftovers(root)
    return _drop_until(entries(root), None)


def leftovers(root: Path) -> list[Path]:
    """Folders in which a process worked that is no more."""
    places = (root, *(root / part for part in MANY))
    return [path for place in places for path in _folders(place) if path.name.startswith(".") and _is_left(path)]


def remove_leftovers(root: Path) -> None:
    """Take them away."""
    for folder in leftovers(root):
        drop(folder)


def _drop_until(kept: Sequence[Entry], excess_bytes: int | None) -> Dropped:
    """Drop entries in this order until so many bytes are gone; None drops all."""
    count = freed = 0
    away: dict[Path, Path] = {}
    # Moved first and removed together: a process that removes each would take longer than all the rest.
    with contextlib.ExitStack() as workplaces:
        for entry in kept:
            if excess_bytes is not None and freed >= excess_bytes:
                break
            area = entry.path.parent
            if area not in away:
                away[area] = workplaces.enter_context(workplace(area))
            if not entry.spared and _moved(entry.path, away[area]):
                count += 1
                freed += entry.size_bytes
    return Dropped(count, freed)


def _moved(path: Path, away: Path) -> bool:
    """Whether an entry could be moved out of the way, because it is there and nobody uses it."""
    try:
        held = claimed(path / IN_USE, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if held is None:
            return False
        path.rename(away / path.name)
        held.close()
    except OSError:
        return False
    return True


def _is_left(folder: Path) -> bool:
    """The locks of living processes tell their folders from those of dead ones, whatever their age; only where there is
    no lock yet, because its maker was killed in that moment, or is stopped in it, does age decide."""
    try:
        return not _locked(folder) if (folder / IN_USE).exists() else time.time() - _last_used(folder) > LOCKLESS_S
    except FileNotFoundError:
        return False


def _locked(folder: Path) -> bool:
    if not (folder / IN_USE).exists():
        return False
    held = claimed(folder / IN_USE, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if held is None:
        return folder.exists()
    held.close()
    return False


def _last_used(folder: Path) -> float:
    times = [folder.stat().st_mtime]
    with contextlib.suppress(FileNotFoundError):
        times.append((folder / IN_USE).stat().st_mtime)
    return max(times)


def _folders(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as found:
            return [Path(item.path) for item in found if item.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _disk_bytes(folder: Path) -> int:
    told = folder.stat(follow_symlinks=False)
    taken, inner = told.st_blocks, [str(folder)]
    while inner:
        # What goes away while this looks takes nothing any more; what must not be looked at cannot be counted.
        with contextlib.suppress(OSError), os.scandir(inner.pop()) as found:
            for item in found:
                with contextlib.suppress(OSError):
                    taken += item.stat(follow_symlinks=False).st_blocks
                if item.is_dir(follow_symlinks=False):
                    inner.append(item.path)
    return taken * _BLOCK_BYTES
