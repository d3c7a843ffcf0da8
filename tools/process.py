"""Runs one subprocess: an argument list, a new session, bounded output, and a hard end for its whole group."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.printable import printable
from tools.usage import Budget, excess, usage

OUTPUT_LIMIT_BYTES = 4 << 20
"""How much of a subprocess's output is kept; a flood beyond it stays on disk until the process ends and is dropped."""
_LOOK_EVERY_S = 0.2

_KEPT_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)


def scrubbed_environment(**extra: str) -> dict[str, str]:
    """The few variables a compiler or a worker needs; nothing that could be a secret. `extra` is added."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, **extra}


@dataclass(frozen=True)
class Completed:
    """How a subprocess ended."""

    returncode: int
    """Negative for a signal."""
    output: str
    """Standard output and error together, cut at `OUTPUT_LIMIT_BYTES`."""
    timed_out: bool
    over_budget: str = ""
    """What it took too much of, where it was killed for that."""


def run(
    argv: list[str],
    *,
    cwd: Path,
    timeout_s: float,
    env: dict[str, str] | None = None,
    budget: Budget | None = None,
) -> Completed:
    """Run a program to its end, to the time limit or until it takes more than its budget; its process group is killed.

    Raises:
        OSError: the program cannot be started at all.
    """
    with tempfile.TemporaryFile(dir=cwd) as sink:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=scrubbed_environment(TMPDIR=str(cwd), LC_ALL="C") if env is None else env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timed_out, over = False, ""
        try:
            over = _wait(process, cwd, time.monotonic() + timeout_s, budget)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        sink.seek(0)
        output = printable(sink.read(OUTPUT_LIMIT_BYTES).decode("utf-8", "replace"))
    return Completed(process.returncode, output, timed_out, over)


def _wait(process: "subprocess.Popen[bytes]", cwd: Path, deadline: float, budget: Budget | None) -> str:
    """Wait for the end, looking at what the process group takes; what it took too much of, or an empty text.

    Raises:
        subprocess.TimeoutExpired: it is not over by the deadline.
    """
    while True:
        remaining = max(0.0, deadline - time.monotonic())
        try:
            process.wait(remaining if budget is None else min(remaining, _LOOK_EVERY_S))
            return ""
        except subprocess.TimeoutExpired:
            if budget is None or time.monotonic() >= deadline:
                raise
            if over := excess(usage(process.pid, cwd, budget), budget):
                return over.message


def end_tree(pid: int) -> None:
    """Kill a process and all its descendants; a process that is stopped first can start no more of them."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    for child in children(pid):
        end_tree(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """The children of all threads of a process; none once it has ended."""
    found = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in thread.read_text().split()]
    return found
