"""Starts one worker as the child of another program, which examines it; the rest is as with any worker."""

import contextlib
import json
import math
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from tasks.errors import HarnessError
from tools.confinement import for_worker
from tools.process import scrubbed_environment
from tools.server_process import KINETO_SILENT
from tools.usage import Budget, identity_of, memory_limit_bytes
from tools.worker.messages import GATE_BYTES
from tools.workers import Worker

_ENTRY = Path(__file__).parent / "worker" / "standalone.py"
_POLL_S = 0.05
_REAP_TIMEOUT_S = 10.0
_LOGGED_TAIL = 1500
GRACE_S = 30.0
"""How much longer than its judge allows a worker lives whose judge is gone."""
_PEER = struct.Struct("3i")
"""struct ucred: process, user, group."""


class Standalone:
    """One worker under a program. Keeps a socket, the worker's private folder and what the program prints in `folder`,
    which is the caller's to make and to drop."""

    def __init__(
        self, program: Sequence[str], folder: Path, *, gpu: bool, read: Sequence[Path], environment: Mapping[str, str]
    ) -> None:
        """`program` is the command line that the worker's is appended to; the worker may read `read` besides the
        system, the program is not confined."""
        self._program = program
        self._folder = folder
        self._gpu = gpu
        self._read = read
        self._environment = environment
        self._budget = Budget(memory_limit_bytes())
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: list[int] = []

    def spawn(self, memory_bytes: int, timeout_s: float) -> Worker:
        """Start the program and its worker, which is to connect within the time, and to be done within it.

        Raises:
            HarnessError: the worker does not connect within the time, or the program ends before; or the folder's path
                is too long for a socket.
        """
        memory_bytes = -(-memory_bytes // GATE_BYTES) * GATE_BYTES + GATE_BYTES
        scratch = self._folder / "scratch"
        scratch.mkdir()
        address = str(self._folder / "control")
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(address)
            except OSError as error:
                raise HarnessError(
                    f"no socket can be made at {address} ({error}); set TMPDIR to a folder with a shorter path."
                ) from error
            listener.listen(1)
            connection = {"socket": address, "memory_bytes": memory_bytes, "gpu": self._gpu}
            self._start(scratch, {**connection, "limit_s": math.ceil(timeout_s + GRACE_S)})
            control = self._accept(listener, time.monotonic() + timeout_s)
        memory_fd = os.memfd_create("kernelwright")
        try:
            os.ftruncate(memory_fd, memory_bytes)
            socket.send_fds(control, [b"\n"], [memory_fd])
            memory = torch.frombuffer(mmap.mmap(memory_fd, memory_bytes), dtype=torch.uint8)
            assert self._process is not None
            data, gate = memory[:-GATE_BYTES], memory[-GATE_BYTES:]
            budget, identity = self._budget.beside(memory_bytes), identity_of(memory_fd)
            worker = Worker(self, self._process.pid, control, data, gate, scratch, budget, identity)
            worker.await_setup()
            return worker
        except BaseException:
            control.close()
            raise
        finally:
            os.close(memory_fd)

    def _start(self, scratch: Path, connection: dict[str, object]) -> None:
        reach = for_worker(scratch, read=self._read, write=[], gpu=self._gpu)
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(scratch), "TRITON_CACHE_DIR": str(scratch)}
        setup = {
            **connection,
            "scratch": str(scratch),
            "file_limit_bytes": self._budget.disk_bytes,
            "data_limit_bytes": None,
            "environment": caches,
            "read": reach.read,
            "write": reach.write,
            "private": {},
        }
        environment = scrubbed_environment(
            TMPDIR=str(scratch), HOME=str(scratch), KINETO_LOG_LEVEL=KINETO_SILENT, **self._environment
        )
        with (self._folder / "program.log").open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    [*self._program, sys.executable, "-I", str(_ENTRY), json.dumps(setup)],
                    cwd=scratch,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise HarnessError(f"{self._program[0]} cannot be started: {error}") from error
        self._groups = [self._process.pid]

    def _accept(self, listener: socket.socket, deadline: float) -> socket.socket:
        listener.settimeout(_POLL_S)
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                control, _ = listener.accept()
                peer, _, _ = _PEER.unpack(control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
                # A program may have put what it started into a group of its own. The sandbox is not closed yet, so it
                # is not the candidate who chose the group.
                with contextlib.suppress(ProcessLookupError):
                    self._groups = list({*self._groups, os.getpgid(peer)} - {os.getpgrp()})
                return control
            if self._ended:
                raise HarnessError(f"{self._program[0]} ended before its worker stood.{self._logged()}")
        raise HarnessError(f"no worker connected in time under {self._program[0]}.{self._logged()}")

    @property
    def _ended(self) -> bool:
        """Whether the program has ended; it is not reaped, so that its number stays its own until `kill` was called."""
        if self._process is None or self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def finish(self, worker: Worker, deadline: float) -> bool:
        """Let the worker end by itself, and wait until the program has ended too; False where it does not in time."""
        with contextlib.suppress(OSError):
            worker.control.shutdown(socket.SHUT_RDWR)
        while not self._ended:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def ended(self, pid: int) -> bool:
        """Whether the program, which is `pid`, has ended."""
        assert self._process is not None and self._process.pid == pid
        return self._ended

    def reap(self, pid: int) -> int | None:
        """The exit code of the program, which is `pid`; None where it does not end soon."""
        assert self._process is not None and self._process.pid == pid
        try:
            code = self._process.wait(_REAP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None
        self._groups = [group for group in self._groups if group != pid]
        return code

    def kill(self) -> None:
        """End the program, the worker and all that they started, at once."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def close(self) -> None:
        """End whatever still runs."""
        self.kill()
        self._groups = []
        if self._process is not None:
            self._process.wait()

    def _logged(self) -> str:
        text = (self._folder / "program.log").read_text(errors="replace").strip()[-_LOGGED_TAIL:]
        return f" It printed:\n{text}" if text else ""
