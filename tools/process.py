"""Runs one subprocess: an argument list, a new session, bounded output, and a hard end for its whole group."""

import contextlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

OUTPUT_LIMIT_BYTES = 4 << 20
"""How much of a subprocess's output is kept; a flood beyond it stays on disk until the process ends and is dropped."""

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


def run(argv: list[str], *, cwd: Path, timeout_s: float, env: dict[str, str] | None = None) -> Completed:
    """Run a program to its end or to the time limit, when its process group is killed.

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
        timed_out = False
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        sink.seek(0)
        output = sink.read(OUTPUT_LIMIT_BYTES).decode("utf-8", "replace")
    return Completed(process.returncode, output, timed_out)
