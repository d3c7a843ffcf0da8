"""How a worker's process is set up before the sandbox closes, whoever started it."""

import os
import resource
import tempfile
from pathlib import Path
from typing import Any

from tools.worker import sandbox


def settle(setup: dict[str, Any]) -> None:
    """Move into the private folder, send what is printed to a file there, and take on the limits of a `setup`:
    `scratch`, `environment`, `file_limit_bytes`, `data_limit_bytes` (or null), and `private`, the folders that become
    empty file systems of the worker's own, of so many bytes."""
    scratch = Path(setup["scratch"])
    null = os.open(os.devnull, os.O_RDONLY)
    # Before the folder may become such a file system, because the judge reads this file.
    printed = os.open(scratch / "printed.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if setup["private"]:
        sandbox.mount_private({Path(path): size_bytes for path, size_bytes in setup["private"].items()})
        scratch.mkdir(exist_ok=True)
    os.chdir(scratch)
    os.environ.update(TMPDIR=str(scratch), HOME=str(scratch), **setup["environment"])
    tempfile.tempdir = None  # imports may have looked TMPDIR up already
    os.dup2(null, 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    for limited, limit in ((resource.RLIMIT_FSIZE, setup["file_limit_bytes"]), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limited, (limit, limit))
    if setup["data_limit_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (setup["data_limit_bytes"], setup["data_limit_bytes"]))


def confine(setup: dict[str, Any]) -> None:
    """Close the sandbox around this process: `read` and `write` of the setup are the folders it may reach."""
    sandbox.confine([Path(path) for path in setup["read"]], [Path(path) for path in setup["write"]])
