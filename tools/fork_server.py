"""The judge's end of the fork server: starts it, and has workers forked and reaped."""

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from tasks.errors import HarnessError
from tools import bubblewrap, confinement
from tools.cache import cache_root, made_and_held
from tools.confinement import for_worker, import_folders
from tools.folders import remove_folder
from tools.process import scrubbed_environment
from tools.usage import Budget, identity_of, memory_limit_bytes
from tools.worker.messages import GATE_BYTES, Wire
from tools.worker_memory import refusal
from tools.workers import KINETO_SILENT, START_TIMEOUT_S, Worker

_SERVER = Path(__file__).parent / "worker" / "fork_server.py"
_REAP_TIMEOUT_S = 10.0
_LOG_TAIL = 1500
_HIDDEN_BYTES = 4096
"""The size of the empty file system on a folder that a worker is not to see."""


class ForkServer:
    """A warm process, PyTorch imported and CUDA untouched, from which workers are forked."""

    def __init__(self, data_limit_bytes: int | None = None, *, gpu: bool = False) -> None:
        self.budget = Budget(memory_limit_bytes() if data_limit_bytes is None else data_limit_bytes)
        self._data_limit_bytes = data_limit_bytes
        self._gpu = gpu
        # Kept, because what the variables say later does not change what the server can see.
        self._cache = cache_root()
        self._isolated = not confinement.lacks_bubblewrap(gpu=gpu)
        self.memory_refusal: str | None = None
        """Why the judge may not read its workers' memory, empty where it may; None until the first stands."""
        self._root = Path(tempfile.mkdtemp(prefix="kernelwright-"))
        self._log = (self._root / "fork_server.log").open("wb")
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._start(theirs)
        ours.settimeout(START_TIMEOUT_S)
        self._socket = ours
        self._wire = Wire(ours)

    def _start(self, socket_to_judge: socket.socket) -> "subprocess.Popen[bytes]":
        compile_caches = [self._cache / name for name in ("inductor", "triton")]
        self._holds = [made_and_held(folder) for folder in compile_caches]
        # Without a limit, torch.compile starts a pool of processes that would outlive the fork and run during
        # measurements.
        environment = scrubbed_environment(
            TMPDIR=str(self._root),
            HOME=str(self._root),
            TORCHINDUCTOR_COMPILE_THREADS="1",
            KINETO_LOG_LEVEL=KINETO_SILENT,
        )
        argv = [sys.executable, "-I", str(_SERVER), str(socket_to_judge.fileno()), *import_folders()]
        if self._isolated:
            own_code = [_SERVER.parent, _SERVER.parents[1] / "__init__.py"]
            sight = for_worker(self._root, own_code, compile_caches, gpu=self._gpu)
            limit = self.budget.disk_bytes
            argv = [*bubblewrap.prefix(sight.read, sight.write, limit, gpu=self._gpu, mounting=True), *argv]
        return subprocess.Popen(
            argv,
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=[socket_to_judge.fileno()],
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def spawn(self, memory_bytes: int, *, trusted: bool = False) -> "Worker":
        """Fork a worker with shared memory of a given size.

        A trusted one (a baseline, our own text) may also use PyTorch's compile caches, which later ones read.

        Raises:
            HarnessError: the fork server is gone, or the worker could not be set up.
        """
        memory_bytes = -(-memory_bytes // GATE_BYTES) * GATE_BYTES + GATE_BYTES
        scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=self._root))
        memory_fd = os.memfd_create("kernelwright")
        ours, theirs = socket.socketpair()
        # Asked before it is sent, the kernel names a message's sender by its number in the receiver's namespace.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            # Our copy of the worker's end must be closed before the worker is waited for, or its death goes unnoticed.
            with theirs, self._failing_clearly():
                os.ftruncate(memory_fd, memory_bytes)
                request = {"spawn": self._worker_setup(scratch, memory_bytes, trusted=trusted)}
                socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], [theirs.fileno(), memory_fd])
                answer = self._wire.receive()
            if answer is None:
                raise HarnessError(f"the fork server ended:\n{self._logged()}")
            memory = torch.frombuffer(mmap.mmap(memory_fd, memory_bytes), dtype=torch.uint8)
            data, gate = memory[:-GATE_BYTES], memory[-GATE_BYTES:]
            budget, identity = self.budget.beside(memory_bytes), identity_of(memory_fd)
            worker = Worker(self, int(answer["pid"]), ours, data, gate, scratch, budget, identity)
            worker.await_setup()
            if self.memory_refusal is None:
                # Found out while there is no candidate that could be taken for the reason.
                self.memory_refusal = refusal(worker.pid)
            return worker
        except BaseException:
            ours.close()
            remove_folder(scratch)
            raise
        finally:
            os.close(memory_fd)

    def _worker_setup(self, scratch: Path, memory_bytes: int, *, trusted: bool) -> dict[str, object]:
        compile_caches = [self._cache / name for name in ("inductor", "triton")]
        inductor, triton = compile_caches if trusted else (scratch, scratch)
        write = compile_caches if trusted else []
        private: dict[str, int] = {}
        if self._isolated:
            # The server's folder holds those of other workers.
            private = {str(folder): self.budget.disk_bytes for folder in (self._root, bubblewrap.SHARED_MEMORY)}
            private |= {} if trusted else {str(folder): _HIDDEN_BYTES for folder in compile_caches}
            # CUDA may use it; it is this worker's alone.
            write = [*write, bubblewrap.SHARED_MEMORY] if self._gpu else write
        reach = for_worker(scratch, read=[], write=write, gpu=self._gpu)
        return {
            "scratch": str(scratch),
            "memory_bytes": memory_bytes,
            "file_limit_bytes": self.budget.disk_bytes,
            "data_limit_bytes": self._data_limit_bytes,
            "environment": {"TORCHINDUCTOR_CACHE_DIR": str(inductor), "TRITON_CACHE_DIR": str(triton)},
            "read": reach.read,
            "write": reach.write,
            "private": private,
        }

    def ended(self, pid: int) -> bool:
        """Whether a worker has ended; the stream to it stays open while a child of it holds the other end."""
        with self._failing_clearly():
            self._wire.send({"ended": {"pid": pid}})
            answer = self._wire.receive()
        return answer is None or bool(answer["ended"])

    def reap(self, pid: int) -> int | None:
        """The exit code of an ended worker, negative for a signal; None where it does not end."""
        with self._failing_clearly():
            self._wire.send({"reap": {"pid": pid, "timeout_s": _REAP_TIMEOUT_S}})
            answer = self._wire.receive()
        status = None if answer is None else answer["status"]
        return None if status is None else int(status)

    def close(self) -> None:
        """End the server; its workers die with it."""
        self._socket.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()
        for held in self._holds:
            held.close()
        remove_folder(self._root)

    @contextlib.contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise HarnessError(f"the fork server does not answer ({error}):\n{self._logged()}") from error

    def _logged(self) -> str:
        try:
            return (self._root / "fork_server.log").read_text(errors="replace")[-_LOG_TAIL:]
        except OSError as error:
            return f"its log cannot be read: {error}"
