"""Leases: measuring owns its device, one candidate at a time, on the whole machine; on a host without builds beside it.

Leases are locked files in one folder for all users of a host, named after what they lease, a GPU by its own identity,
which is the same for every user and every `CUDA_VISIBLE_DEVICES`. The kernel frees a lease when its holder dies.
They are kept by agreement: any user of the host could hold one for as long as they like.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.errors import UsageError
from tools.gpus import visible_gpus

_HOST = Path("/tmp/kernelwright-leases")
"""Not below TMPDIR, which each user or job may have to itself."""
_HOST_MEASUREMENT = "host-measurement"
_FOR_ALL = 0o1777
_READABLE_BY_ALL = 0o444


@contextmanager
def lease(device: str, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a device for the time of the block; `waiting` is told once when another process holds it.

    Args:
        device: `cuda` is the first GPU that this process sees; any other name stands for itself.
        waiting: takes the message.

    Raises:
        UsageError: the folder of leases, or the lease in it, cannot be used.
    """
    with _held(_name(device), fcntl.LOCK_EX, lambda: waiting(f"waiting: another process is measuring on {device}")):
        yield


@contextmanager
def building() -> Iterator[None]:
    """Compile for the host target within the block: beside other builds, never beside a measurement of host code."""
    with contextlib.ExitStack() as held:
        # Who measures holds the turn while waiting, so that a stream of builds cannot keep it waiting for ever.
        with _held(f"{_HOST_MEASUREMENT}-turn", fcntl.LOCK_EX):
            held.enter_context(_held(_HOST_MEASUREMENT, fcntl.LOCK_SH))
        yield


@contextmanager
def no_builds(waiting: Callable[[str], None]) -> Iterator[None]:
    """Measure host code within the block: builds for the host target share its cores, so they wait meanwhile."""
    with (
        _held(f"{_HOST_MEASUREMENT}-turn", fcntl.LOCK_EX),
        _held(_HOST_MEASUREMENT, fcntl.LOCK_EX, lambda: waiting("waiting: other processes are building")),
    ):
        yield


def _name(device: str) -> str:
    gpus = visible_gpus() if device == "cuda" else ()
    return gpus[0].uuid if gpus else device.replace(":", "-")


def lease_folder() -> Path:
    """`KERNELWRIGHT_LEASES`, else one folder for all users of the host; made where it is missing.

    Containers that share a GPU, but not /tmp, need a shared folder named by that variable.

    Raises:
        UsageError: it is no folder, or cannot be made.
    """
    named = os.environ.get("KERNELWRIGHT_LEASES")
    folder = Path(named) if named else _HOST
    try:
        folder.mkdir(parents=bool(named))
        # What mkdir is given, the umask takes away from.
        folder.chmod(_FOR_ALL)
    except FileExistsError:
        if folder.is_symlink() or not folder.is_dir():
            raise UsageError(f"{folder}, the folder of leases, is no folder; remove it.") from None
    except OSError as error:
        raise UsageError(
            f"the folder of leases {folder} cannot be made ({error}); set KERNELWRIGHT_LEASES to one that can."
        ) from error
    return folder


@contextmanager
def _held(name: str, kind: int, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    path = lease_folder() / name
    descriptor = _locked(path, kind, waiting)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path, kind: int, waiting: Callable[[], None]) -> int:
    told = False
    while True:
        descriptor = _opened(path)
        try:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    waiting()
                told = True
                fcntl.flock(descriptor, kind)
            if _is_still(path, descriptor):
                # Programs that clear /tmp go by age.
                with contextlib.suppress(PermissionError):
                    os.utime(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Open a lease for reading, which is enough to lock it; whoever comes first makes it, for all users.

    Never with O_CREAT where it exists: in a folder that all may write to, Linux (fs.protected_regular) refuses that for
    a file of another user's.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    while True:
        try:
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, flags)
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, _READABLE_BY_ALL)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"the lease {path} cannot be opened ({error.strerror}); remove it, or have its owner do so, or set "
                "KERNELWRIGHT_LEASES to another folder for all who use this machine."
            ) from error
        os.fchmod(descriptor, _READABLE_BY_ALL)
        return descriptor


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the path names the file that was locked: it may have been removed meanwhile, and made again by others."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
