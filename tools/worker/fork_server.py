"""The fork server: imports PyTorch once, and forks a fresh worker for each candidate. It never touches a GPU.

Run as `python -I fork_server.py FD plain|compiles FOLDER...`, FD being a Unix stream socket to the judge, and the
folders those that the judge imports installed packages from; `compiles` prepares for torch.compile, too. Messages, one
JSON object a line:

    {"spawn": {"scratch": DIR, "memory_bytes": N, "file_limit_bytes": N, "data_limit_bytes": N or null,
               "environment": {...}, "read": [DIR...], "write": [DIR...], "private": {DIR: BYTES, ...},
               "compiles": whether it may use torch.compile}}
        with two file descriptors: control, memory
        -> {"pid": N}, in the server's own process namespace; so are the numbers below
    {"ended": {"pid": N}}                   -> {"ended": true or false}; it is not reaped
    {"reap": {"pid": N, "timeout_s": T}}    -> {"status": N} as of os.waitstatus_to_exitcode, or {"status": null}
"""

import contextlib
import ctypes
import importlib
import json
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Behind the standard library: the archive, the folder, and the one of compiled modules, which stand first everywhere.
sys.path[3:3] = sys.argv[3:]
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch  # noqa: E402

from tools.worker import main  # noqa: E402
from tools.worker.settling import confine, settle  # noqa: E402

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LAST_SWEEP_S = 2.0
DRIVER = re.compile(r"/libcuda\.so[.\d]*$", re.MULTILINE)
_workers: set[int] = set()


def _import_for_all_workers(*more: str) -> None:
    """Import before the fork what no worker should pay for, and `more`.

    torch.utils.cpp_extension asks whether there is a GPU while it is imported. Asked of the driver, the answer would
    initialise it here, and no forked worker could use it any more. torch._dynamo, a second of work, is imported by the
    first call that is watched, and by torch.compile.
    """
    ask = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    try:
        for name in ("torch.utils.cpp_extension", "torch._dynamo", *more):
            importlib.import_module(name)
    finally:
        torch.cuda.is_available = ask


def _import_compiler() -> None:
    """Import what torch.compile needs before the fork. Should that touch the driver, as a PyTorch may that nobody has
    tried this with, begin anew without it."""
    before = _has_driver()
    with contextlib.suppress(Exception):
        _import_for_all_workers("torch._inductor.compile_fx")
    if _has_driver() and not before:
        print("importing torch.compile loads the CUDA driver: it is left to each baseline", flush=True)
        os.execv(sys.executable, [sys.executable, "-I", __file__, sys.argv[1], "plain", *sys.argv[3:]])


def _has_driver() -> bool:
    return DRIVER.search(Path("/proc/self/maps").read_text()) is not None


def _find_keys() -> list[Callable[[], object]]:
    """What finds out the identities of PyTorch and Triton, the hashes of all their files: torch.compile looks them up
    in each worker that it compiles in, and keeps them. Other versions have other names for it, and pay for it there."""
    named = (("torch._inductor.codecache", "torch_key"), ("torch._inductor.runtime.triton_compat", "triton_key"))
    found = []
    for module, name in named:
        with contextlib.suppress(ImportError, AttributeError):
            found.append(getattr(importlib.import_module(module), name))
    return found


def _try(step: Callable[[], object]) -> None:
    # What fails here fails again in the worker that needs it, and is told there.
    with contextlib.suppress(Exception):
        step()


def _become_worker(control: int, memory: int, spawn: dict[str, Any]) -> None:
    """Runs in the forked child, and never returns."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    settle(spawn)
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd not in (control, memory):
            with contextlib.suppress(OSError):
                os.close(fd)
    confine(spawn)
    main.serve(socket.socket(fileno=control), memory, spawn["memory_bytes"])
    main.hush()
    os._exit(0)


def _spawn(judge: socket.socket, spawn: dict[str, Any], fds: list[int]) -> int:
    control, memory = fds
    pid = os.fork()
    if pid == 0:
        judge.close()
        try:
            _become_worker(control, memory, spawn)
        finally:
            os._exit(1)
    for fd in fds:
        os.close(fd)
    _workers.add(pid)
    return pid


def _ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _reap(pid: int, timeout_s: float) -> int | None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if found:
            _workers.discard(pid)
            _end_orphans(deadline)
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.002)


def _end_orphans(deadline: float) -> None:
    """Kill what a dead worker left running, daemons too: its descendants are children of this subreaper now."""
    while time.monotonic() < deadline:
        orphans = [pid for pid in _children() if pid not in _workers]
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    tasks = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in tasks.read_text().split()]


def serve(judge: socket.socket, to_find: list[Callable[[], object]]) -> None:
    """Answer the judge until it hangs up; `to_find` is done as long as it asks for nothing, and before the first worker
    that needs it."""
    buffer = b""
    fds: list[int] = []
    while True:
        while to_find and not select.select([judge], [], [], 0)[0]:
            _try(to_find.pop())
        chunk, received, _, _ = socket.recv_fds(judge, 1 << 16, 2)
        if not chunk:
            _workers.clear()
            _end_orphans(time.monotonic() + LAST_SWEEP_S)
            return
        fds += received
        buffer += chunk
        while b"\n" in buffer:
            line, buffer = buffer.split(b"\n", 1)
            message = json.loads(line)
            answer: dict[str, Any]
            if "spawn" in message:
                while to_find and message["spawn"]["compiles"]:
                    _try(to_find.pop())
                answer = {"pid": _spawn(judge, message["spawn"], fds[:2])}
                del fds[:2]
            elif "ended" in message:
                answer = {"ended": _ended(int(message["ended"]["pid"]))}
            else:
                answer = {"status": _reap(int(message["reap"]["pid"]), float(message["reap"]["timeout_s"]))}
            judge.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _import_for_all_workers()
    to_find: list[Callable[[], object]] = []
    if sys.argv[2] == "compiles":
        _import_compiler()
        to_find = _find_keys()
    serve(socket.socket(fileno=int(sys.argv[1])), to_find)
