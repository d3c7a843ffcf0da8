"""The fork server's process: started, and talked to. Needs no PyTorch, whose import takes this one seconds, too.

So a process that will judge starts it first, and imports PyTorch beside it.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.errors import HarnessError
from tasks.spec import Target
from tools import bubblewrap, confinement
from tools.cache import cache_root, made_and_held
from tools.confinement import for_worker, import_folders
from tools.folders import remove_folder
from tools.process import scrubbed_environment
from tools.usage import Budget, memory_limit_bytes
from tools.worker.messages import Wire

START_TIMEOUT_S = 120.0
KINETO_SILENT = "99"
"""The profiler that watches calls would print of its own among what the candidate printed."""
_SERVER = Path(__file__).parent / "worker" / "fork_server.py"
_LOG_TAIL = 1500


class Processes(NamedTuple):
    """What the judges of one process share to have workers forked."""

    candidates: "ServerProcess"
    baselines: "ServerProcess | None" = None
    """One that `compiles`; without it baselines come from the other one, too."""


class ServerProcess:
    """A process in which PyTorch is imported and CUDA untouched; any number of fork servers may have it fork workers,
    one after the other."""

    def __init__(self, data_limit_bytes: int | None = None, *, gpu: bool = False, compiles: bool = False) -> None:
        """`compiles` has it import, and find out, also what torch.compile needs: two seconds more, which each baseline
        saves that is forked from it. It is for those alone: what is imported has PyTorch's compile caches in mind.

        Raises:
            HarnessError: it could not be started.
            UsageError: the cache's folder cannot be used.
        """
        self.budget = Budget(memory_limit_bytes() if data_limit_bytes is None else data_limit_bytes)
        self.data_limit_bytes = data_limit_bytes
        self.gpu = gpu
        # Kept, because what the variables say later does not change what the server can see.
        self.cache = cache_root()
        self.compile_caches = [self.cache / name for name in ("inductor", "triton")]
        self.isolated = not confinement.lacks_bubblewrap(gpu=gpu)
        self._compiles = compiles
        self.root = Path(tempfile.mkdtemp(prefix="kernelwright-"))
        self._log = (self.root / "fork_server.log").open("wb")
        self._holds = [made_and_held(folder) for folder in self.compile_caches]
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._start(theirs)
        ours.settimeout(START_TIMEOUT_S)
        self._socket = ours
        self._wire = Wire(ours)

    @classmethod
    def for_target(cls, target: Target, *, compiles: bool = False) -> "ServerProcess":
        """For workers of a target; raises as the constructor does."""
        limit = memory_limit_bytes() if target is Target.CPU else None
        return cls(limit, gpu=target is Target.CUDA, compiles=compiles)

    def _start(self, socket_to_judge: socket.socket) -> "subprocess.Popen[bytes]":
        # Without a limit, torch.compile starts a pool of processes that would outlive the fork and run during
        # measurements.
        environment = scrubbed_environment(
            HOME=str(self.root),
            TORCHINDUCTOR_COMPILE_THREADS="1",
            KINETO_LOG_LEVEL=KINETO_SILENT,
            **(self._compiler_environment() if self._compiles else {"TMPDIR": str(self.root)}),
        )
        kind = "compiles" if self._compiles else "plain"
        argv = [sys.executable, "-I", str(_SERVER), str(socket_to_judge.fileno()), kind, *import_folders()]
        if self.isolated:
            own_code = [_SERVER.parent, _SERVER.parents[1] / "__init__.py"]
            sight = for_worker(self.root, own_code, self.compile_caches, gpu=self.gpu)
            limit = self.budget.disk_bytes
            argv = [*bubblewrap.prefix(sight.read, sight.write, limit, gpu=self.gpu, mounting=True), *argv]
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

    def _compiler_environment(self) -> dict[str, str]:
        """PyTorch puts headers into a folder of the time when it was imported, below TMPDIR."""
        inductor, triton = map(str, self.compile_caches)
        return {"TMPDIR": inductor, "TORCHINDUCTOR_CACHE_DIR": inductor, "TRITON_CACHE_DIR": triton}

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def ask(self, request: dict[str, object], descriptors: Sequence[int] = ()) -> dict[str, Any] | None:
        """Its answer to a request, which may come with file descriptors; None where it has hung up.

        Raises:
            HarnessError: it does not answer.
        """
        with self._failing_clearly():
            socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], list(descriptors))
            return self._wire.receive()

    def await_ready(self) -> None:
        """Wait until it has imported what it is to import; raises HarnessError where it ends before."""
        if self.ask({"ended": {"pid": self._process.pid}}) is None:
            raise HarnessError(f"the fork server ended:\n{self.logged()}")

    def hang_up(self) -> None:
        """Have it end, with its workers; does not wait for it."""
        self._socket.close()

    def close(self) -> None:
        """End it; its workers die with it."""
        self.hang_up()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()
        for held in self._holds:
            held.close()
        remove_folder(self.root)

    @contextlib.contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise HarnessError(f"the fork server does not answer ({error}):\n{self.logged()}") from error

    def logged(self) -> str:
        """The end of what it has printed."""
        try:
            return (self.root / "fork_server.log").read_text(errors="replace")[-_LOG_TAIL:]
        except OSError as error:
            return f"its log cannot be read: {error}"
