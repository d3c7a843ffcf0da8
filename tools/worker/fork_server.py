"""The fork server: imports PyTorch once, and forks a fresh worker for each candidate. It never touches a GPU.

Run as `python -I fork_server.py FD`, FD being a Unix stream socket to the judge. Messages, one JSON object a line:

    {"spawn": {"scratch": DIR, "memory_bytes": N, "file_limit_bytes": N}}   with two file descriptors: control, memory
        -> {"pid": N}
    {"reap": {"pid": N, "timeout_s": T}}    -> {"status": N} as of os.waitstatus_to_exitcode, or {"status": null}
"""

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from tools.worker import main

PR_SET_PDEATHSIG = 1


def _import_for_all_workers() -> None:
    """Import before the fork what no worker should pay for.

    torch.utils.cpp_extension asks whether there is a GPU while it is imported. Asked of the driver, the answer would
    initialise it here, and no forked worker could use it any more.
    """
    ask = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    try:
        importlib.import_module("torch.utils.cpp_extension")
    finally:
        torch.cuda.is_available = ask


def _become_worker(control: int, memory: int, spawn: dict[str, object]) -> None:
    """Runs in the forked child, and never returns."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    scratch = str(spawn["scratch"])
    os.chdir(scratch)
    os.environ.update(TMPDIR=scratch, HOME=scratch)
    null = os.open(os.devnull, os.O_RDONLY)
    printed = os.open("printed.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = int(str(spawn["file_limit_bytes"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd not in (control, memory):
            with contextlib.suppress(OSError):
                os.close(fd)
    main.serve(socket.socket(fileno=control), memory, int(str(spawn["memory_bytes"])))
    main.hush()
    os._exit(0)


def _spawn(judge: socket.socket, spawn: dict[str, object], fds: list[int]) -> int:
    control, memory = fds
    pid = os.fork()
    if pid == 0:
        judge.close()
        try:
            _become_worker(control, memory, spawn)
        finally:
            os._exit(70)
    for fd in fds:
        os.close(fd)
    return pid


def _reap(pid: int, timeout_s: float) -> int | None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.002)


def serve(judge: socket.socket) -> None:
    """Answer the judge until it hangs up."""
    buffer = b""
    fds: list[int] = []
    while True:
        chunk, received, _, _ = socket.recv_fds(judge, 1 << 16, 2)
        if not chunk:
            return
        fds += received
        buffer += chunk
        while b"\n" in buffer:
            line, buffer = buffer.split(b"\n", 1)
            message = json.loads(line)
            answer: dict[str, object]
            if "spawn" in message:
                answer = {"pid": _spawn(judge, message["spawn"], fds[:2])}
                del fds[:2]
            else:
                answer = {"status": _reap(int(message["reap"]["pid"]), float(message["reap"]["timeout_s"]))}
            judge.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_for_all_workers()
    serve(socket.socket(fileno=int(sys.argv[1])))
