"""The lease: measuring owns its device, one candidate at a time, on the whole machine."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tools.cache import cache_root


@contextmanager
def lease(device: str, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a device for the time of the block; `waiting` is told once when another process holds it.

    The kernel frees the lease when its holder dies.
    """
    folder = cache_root() / "leases"
    folder.mkdir(exist_ok=True)
    with (folder / device.replace(":", "-")).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting(f"waiting: another process is measuring on {device}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
