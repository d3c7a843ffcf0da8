"""Where built extensions, precompiled headers and PyTorch's own compile caches are kept between processes.

Whoever uses an entry holds it: the kernel's lock on a file in it, so that what a killed process held is free. Nobody
takes an entry away that is held, and whatever is not held can go at any time (`tools.cache_tending`).
"""

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.errors import UsageError
from tools.folders import remove_folder

LIMIT_VARIABLE = "KERNELWRIGHT_CACHE_BYTES"
DEFAULT_LIMIT_BYTES = 10 * 10**9
"""Six precompiled headers of 0.8 GB, which is as many as are kept, leave room for some 10,000 builds of half a MB."""
IN_USE = "in-use"
"""The file in an entry that is locked while the entry is used; its time of change is the last use."""
_WORKING = ".working-"


def cache_root() -> Path:
    """`KERNELWRIGHT_CACHE`, else `kernelwright` in `XDG_CACHE_HOME`, else in `~/.cache`; made where it is missing.

    Raises:
        UsageError: the folder cannot be made or written.
    """
    named = os.environ.get("KERNELWRIGHT_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    root = Path(named) if named else (Path(shared) if shared else Path.home() / ".cache") / "kernelwright"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"the cache folder {root} cannot be made ({error}); set KERNELWRIGHT_CACHE.") from error
    if not os.access(root, os.W_OK):
        raise UsageError(f"the cache folder {root} cannot be written; set KERNELWRIGHT_CACHE to one that can.")
    return root.resolve()


def cache_limit_bytes() -> int:
    """The most that the cache may take: `KERNELWRIGHT_CACHE_BYTES`, else 10 GB.

    Raises:
        UsageError: the variable is no number of bytes.
    """
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT_BYTES
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"{LIMIT_VARIABLE} is {text!r}, which is no number of bytes; write digits only, such as "
            f"{DEFAULT_LIMIT_BYTES} for 10 GB, or unset it."
        )
    return int(text)


class Hold:
    """Keeps an entry of the cache where it is until this is closed or forgotten, or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def keeps(self, lock: Path) -> bool:
        """Whether the file of this name is the one that was locked; another process may have put its own there."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), lock.lstat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Let the entry go; more than once is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def hold(entry: Path) -> Hold | None:
    """Note that an entry is used now, and keep it; None where there is none.

    Raises:
        OSError: it cannot be locked.
    """
    if (held := claimed(entry / IN_USE, fcntl.LOCK_SH)) is not None:
        os.utime(entry / IN_USE)
    return held


def made_and_held(folder: Path) -> Hold:
    """Make an entry where it is missing, and keep it."""
    while True:
        folder.mkdir(exist_ok=True)
        if (held := hold(folder)) is not None:
            return held


def claimed(lock: Path, operation: int) -> Hold | None:
    """Lock a file, made where it is missing, and be sure that it is still there afterwards: who takes a folder away
    locks the file in it first. None where it is gone, or, with LOCK_NB, locked by another."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return None
    held = Hold(descriptor)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, operation)
        if held.keeps(lock):
            return held
    held.close()
    return None


@contextmanager
def workplace(area: Path) -> Iterator[Path]:
    """A private folder in a part of the cache, gone afterwards. Nobody tidies it away while its process lives."""
    area.mkdir(parents=True, exist_ok=True)
    held = None
    while held is None:
        outer = Path(tempfile.mkdtemp(prefix=_WORKING, dir=area))
        held = claimed(outer / IN_USE, fcntl.LOCK_SH)
    try:
        # The lock lies outside of what is handed out, where no compiler may write.
        work = outer / "work"
        work.mkdir(mode=0o700)
        yield work
    finally:
        remove_folder(outer)
        held.close()


@contextmanager
def published(final: Path) -> Iterator[Path]:
    """A private folder to build in; it takes its final name at once when the block ends well, else it goes away.

    When another process has published the same content meanwhile, theirs stays and ours is dropped.
    """
    with workplace(final.parent) as work:
        yield work
        while True:
            try:
                work.rename(final)
                return
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            # Where theirs was taken away meanwhile, ours is needed after all.
            if final.is_dir():
                return
