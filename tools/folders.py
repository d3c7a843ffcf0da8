"""Reads, writes and drops files in folders that untrusted programs have written to.

What lies there under a name that we chose may be a link to any file of the user's, a pipe that nobody writes to, a
file of terabytes without content, or folders nested deeper than Python's own recursion goes.
"""

import errno
import os
import stat
import subprocess
from pathlib import Path

_AS_IT_LIES = os.O_NOFOLLOW | os.O_CLOEXEC


def read_regular(path: Path, *, last: int | None = None, limit: int | None = None) -> bytes:
    """The content of a regular file, or its `last` bytes.

    Raises:
        OSError: it is none, it is a link, or it has more than `limit` bytes.
    """
    # Without O_NONBLOCK, opening a pipe would wait for somebody who writes to it.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _AS_IT_LIES)
    with os.fdopen(opened, "rb") as file:
        told = os.fstat(opened)
        if not stat.S_ISREG(told.st_mode):
            raise OSError(errno.EINVAL, f"{path.name} is no regular file")
        if limit is not None and told.st_size > limit:
            raise OSError(errno.EFBIG, f"{path.name} has more than {limit} bytes")
        if last is not None:
            file.seek(max(0, told.st_size - last))
            return file.read(last)
        return file.read() if limit is None else file.read(limit)


def write_new(path: Path, text: str, *, errors: str = "strict") -> None:
    """Write a file that was not there before, never through a link.

    Raises:
        OSError: something is there already.
    """
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _AS_IT_LIES, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8", errors=errors) as file:
        file.write(text)


def remove_folder(path: Path) -> None:
    """Drop a folder as far as that goes. shutil.rmtree calls itself once a level, and ends in a RecursionError."""
    subprocess.run(["rm", "-rf", "--", str(path)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
