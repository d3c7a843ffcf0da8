"""A worker that is no fork of the fork server, for programs that must start what they examine, as compute-sanitizer.

Run as `python -I standalone.py SETUP`, SETUP being one JSON object: what `tools.worker.settling` needs, and

    {"socket": PATH, "memory_bytes": N, "gpu": true or false, "limit_s": N}

The control connection is made to the socket at PATH, and the shared memory's descriptor is the first that comes over
it: whether such a program hands its own descriptors down, its manual does not say.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.worker.settling import confine, settle


def _drop_inherited(scratch: Path) -> None:
    """Close what was handed down of the judge's folder, beside the worker's own in it: compute-sanitizer (13.5) leaves
    its report open for writing in the program that it examines. Its pipes, which lie in the worker's folder, stay."""
    descriptors = Path("/proc/self/fd")
    for number in [int(entry.name) for entry in descriptors.iterdir()]:
        with contextlib.suppress(OSError):
            target = (descriptors / str(number)).readlink()
            if number > 2 and target.is_relative_to(scratch.parent) and not target.is_relative_to(scratch):
                os.close(number)


def _serve(setup: dict[str, Any]) -> None:
    """Serve one candidate, and return: only where Python ends by itself does the program above finish its report."""
    import torch

    from tools.worker import main

    if setup["gpu"]:
        # The examining program sets itself up when CUDA starts: its files and connections are made before the sandbox
        # closes, so that the sandbox needs no holes for them.
        torch.empty(1, device="cuda")
    control = socket.socket(socket.AF_UNIX)
    control.connect(setup["socket"])
    _, (memory,), _, _ = socket.recv_fds(control, 1, 1)
    confine(setup)
    # No fork server ends this worker when the judge is gone.
    signal.alarm(setup["limit_s"])
    main.serve(control, memory, setup["memory_bytes"])
    main.hush()


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    settle(arguments)
    _drop_inherited(Path(arguments["scratch"]))
    _serve(arguments)
