"""The judge's end of the fork server: has workers forked and reaped."""

import mmap
import os
import socket
import tempfile
from pathlib import Path

import torch

from tasks.errors import HarnessError
from tools import bubblewrap
from tools.confinement import for_worker
from tools.folders import remove_folder
from tools.server_process import ServerProcess
from tools.usage import identity_of
from tools.worker.messages import GATE_BYTES
from tools.worker_memory import refusal
from tools.workers import Worker

_REAP_TIMEOUT_S = 10.0
_HIDDEN_BYTES = 4096
"""The size of the empty file system on a folder that a worker is not to see."""


class ForkServer:
    """A warm process, PyTorch imported and CUDA untouched, from which workers are forked."""

    def __init__(
        self, data_limit_bytes: int | None = None, *, gpu: bool = False, process: ServerProcess | None = None
    ) -> None:
        """`process` is one that others use, too, and end; else this one starts its own."""
        self._owns = process is None
        self._process = ServerProcess(data_limit_bytes, gpu=gpu) if process is None else process
        self.budget = self._process.budget
        """What each worker may take."""
        self.memory_refusal: str | None = None
        """Why the judge may not read its workers' memory, empty where it may; None until the first stands."""

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
        scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=self._process.root))
        memory_fd = os.memfd_create("kernelwright")
        ours, theirs = socket.socketpair()
        # Asked before it is sent, the kernel names a message's sender by its number in the receiver's namespace.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            # Our copy of the worker's end must be closed before the worker is waited for, or its death goes unnoticed.
            with theirs:
                os.ftruncate(memory_fd, memory_bytes)
                request: dict[str, object] = {"spawn": self._worker_setup(scratch, memory_bytes, trusted=trusted)}
                answer = self._process.ask(request, [theirs.fileno(), memory_fd])
            if answer is None:
                raise HarnessError(f"the fork server ended:\n{self._process.logged()}")
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
        process = self._process
        inductor, triton = process.compile_caches if trusted else (scratch, scratch)
        write = process.compile_caches if trusted else []
        private: dict[str, int] = {}
        if process.isolated:
            # The server's folder holds those of other workers.
            private = {str(folder): self.budget.disk_bytes for folder in (process.root, bubblewrap.SHARED_MEMORY)}
            private |= {} if trusted else {str(folder): _HIDDEN_BYTES for folder in process.compile_caches}
            # CUDA may use it; it is this worker's alone.
            write = [*write, bubblewrap.SHARED_MEMORY] if process.gpu else write
        reach = for_worker(scratch, read=[], write=write, gpu=process.gpu)
        return {
            "scratch": str(scratch),
            "memory_bytes": memory_bytes,
            "file_limit_bytes": self.budget.disk_bytes,
            "data_limit_bytes": process.data_limit_bytes,
            "environment": {"TORCHINDUCTOR_CACHE_DIR": str(inductor), "TRITON_CACHE_DIR": str(triton)},
            "read": reach.read,
            "write": reach.write,
            "private": private,
            "compiles": trusted,
        }

    def ended(self, pid: int) -> bool:
        """Whether a worker has ended; the stream to it stays open while a child of it holds the other end."""
        answer = self._process.ask({"ended": {"pid": pid}})
        return answer is None or bool(answer["ended"])

    def reap(self, pid: int) -> int | None:
        """The exit code of an ended worker, negative for a signal; None where it does not end."""
        answer = self._process.ask({"reap": {"pid": pid, "timeout_s": _REAP_TIMEOUT_S}})
        status = None if answer is None else answer["status"]
        return None if status is None else int(status)

    def close(self) -> None:
        """End the server, if it is this one's own; its workers die with it."""
        if self._owns:
            self._process.close()
