"""Starts, asks and ends workers; maps every way a worker can fail to a verdict."""

import contextlib
import json
import mmap
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from tasks.errors import HarnessError, ProtocolError
from tools.build import Builder, BuildError, BuiltExtension
from tools.cache import cache_root
from tools.candidate import Candidate
from tools.confinement import for_worker
from tools.process import scrubbed_environment
from tools.replies import BuildLine, Done, DoneLine, FaultLine, ReadyLine, WorkerFault, parse_reply
from tools.results import Diagnostic, Extension
from tools.verdict import Verdict
from tools.worker.messages import GATE_BYTES, GO, Request, Timed, Wire, request_to_json

_SERVER = Path(__file__).parent / "worker" / "fork_server.py"
_START_TIMEOUT_S = 120.0
_REAP_TIMEOUT_S = 10.0
FILE_LIMIT_BYTES = 1 << 30
_PRINTED_TAIL = 1500
_EAGER_S = 0.1
KINETO_SILENT = "99"
"""The profiler that watches calls would print of its own among what the candidate printed."""
# Lines that faulthandler prints about the worker's own code; they mean nothing to a candidate's author.
_OUR_FRAMES = re.compile(r'\s*File "(?!candidate\.py)|Extension modules:|Current thread ')


class CandidateFault(Exception):
    """A candidate's fault on its way from the worker to the judge, who makes a `Fault` of it."""

    def __init__(
        self,
        verdict: Verdict,
        message: str,
        diagnostics: tuple[Diagnostic, ...] = (),
        excess: float | None = None,
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.diagnostics = diagnostics
        self.excess = excess


class ForkServer:
    """A warm process, PyTorch imported and CUDA untouched, from which workers are forked."""

    def __init__(self, data_limit_bytes: int | None = None, *, gpu: bool = False) -> None:
        self._data_limit_bytes = data_limit_bytes
        self._gpu = gpu
        ours, theirs = socket.socketpair()
        self._root = Path(tempfile.mkdtemp(prefix="kernelwright-"))
        self._log = (self._root / "fork_server.log").open("wb")
        # Without a limit, torch.compile starts a pool of processes that would outlive the fork and run during
        # measurements.
        environment = scrubbed_environment(
            TMPDIR=str(self._root),
            HOME=str(self._root),
            TORCHINDUCTOR_COMPILE_THREADS="1",
            KINETO_LOG_LEVEL=KINETO_SILENT,
        )
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_SERVER), str(theirs.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        ours.settimeout(_START_TIMEOUT_S)
        self._socket = ours
        self._wire = Wire(ours)

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
        worker: Worker | None = None
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
            worker = Worker(self, int(answer["pid"]), ours, memory[:-GATE_BYTES], memory[-GATE_BYTES:], scratch)
            worker.await_setup()
            return worker
        except BaseException:
            ours.close()
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        finally:
            os.close(memory_fd)

    def _worker_setup(self, scratch: Path, memory_bytes: int, *, trusted: bool) -> dict[str, object]:
        cache = cache_root()
        compile_caches = [cache / name for name in ("inductor", "triton")]
        # A folder that is made later would not be covered by the rules.
        for folder in (cache / "builds", *compile_caches):
            folder.mkdir(exist_ok=True)
        inductor, triton = compile_caches if trusted else (scratch, scratch)
        reach = for_worker(scratch, read=[cache / "builds"], write=compile_caches if trusted else [], gpu=self._gpu)
        return {
            "scratch": str(scratch),
            "memory_bytes": memory_bytes,
            "file_limit_bytes": FILE_LIMIT_BYTES,
            "data_limit_bytes": self._data_limit_bytes,
            "environment": {"TORCHINDUCTOR_CACHE_DIR": str(inductor), "TRITON_CACHE_DIR": str(triton)},
            "read": reach.read,
            "write": reach.write,
        }

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
        shutil.rmtree(self._root, ignore_errors=True)

    @contextlib.contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise HarnessError(f"the fork server does not answer ({error}):\n{self._logged()}") from error

    def _logged(self) -> str:
        try:
            return (self._root / "fork_server.log").read_text(errors="replace")[-_PRINTED_TAIL:]
        except OSError as error:
            return f"its log cannot be read: {error}"


class Starter(Protocol):
    """Who started a worker, and sees it end."""

    def reap(self, pid: int) -> int | None:
        """The exit code of an ended worker, negative for a signal; None where it does not end."""
        ...


@dataclass
class Worker:
    """The judge's end of one worker."""

    server: Starter
    pid: int
    control: socket.socket
    memory: torch.Tensor
    """uint8, shared with the worker."""
    gate: torch.Tensor
    """The page that holds the gate's word, shared too."""
    scratch: Path
    extensions: list[Extension] = field(default_factory=list)
    """What its candidate has built or taken from the cache so far."""
    build_faults: list[BuildError] = field(default_factory=list)
    build_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._wire = Wire(self.control)
        self._ended = False
        self._spent = False

    def await_setup(self) -> None:
        """Wait until the worker stands; raises HarnessError where it does not."""
        self.control.settimeout(_START_TIMEOUT_S)
        try:
            message = self._wire.receive()
        except (OSError, ValueError) as error:
            raise HarnessError(f"a worker did not start: {error}") from error
        if message is None:
            raise HarnessError(f"a worker could not be set up: {self._death().message}")

    def ask(self, request: Request, timeout_s: float, builder: Builder, candidate: Candidate) -> Done:
        """Send a request and wait for its answer, building what the candidate asks for meanwhile.

        The time limit does not count builds, which have their own.

        Raises:
            CandidateFault: the candidate failed, or the worker ended, was silent or broke the protocol.
            HarnessError, UnavailableError: a build could not be tried.
        """
        with self._failing_as_verdict(request.op, timeout_s):
            self._wire.send(request_to_json(request))
            return self._done(timeout_s, builder, candidate)

    def begin(self, request: Timed, ready_s: float, timeout_s: float, builder: Builder, candidate: Candidate) -> bool:
        """Send a timed request and wait until the worker is ready for its inputs; raises as `ask`.

        Returns False where a gated call does not say so within `ready_s`: then it waits for the GPU, thus for the gate.
        """
        with self._failing_as_verdict(request.op, timeout_s):
            self._wire.send(request_to_json(request))
            if request.gate and not select.select([self.control], [], [], ready_s)[0]:
                return False
            if not isinstance(self._reply(timeout_s, builder, candidate), ReadyLine):
                raise ProtocolError("it answered before it was given its inputs")
            return True

    def finish(
        self, request: Timed, timeout_s: float, builder: Builder, candidate: Candidate, *, eagerly: bool
    ) -> Done:
        """Let a timed request that was begun go on, and wait for its answer; raises as `ask`.

        Args:
            request: what `begin` was given.
            timeout_s: as of `ask`.
            builder: as of `ask`.
            candidate: as of `ask`.
            eagerly: poll for the answer for a while before sleeping: waking up takes some 50 us, more after a longer
                sleep. Not on the host target, where it would take a core from the candidate.
        """
        with self._failing_as_verdict(request.op, timeout_s):
            if request.gate:
                self.open_gate(request.gate)
            else:
                self._wire.send(GO)
            if eagerly:
                self._poll_for_answer()
            return self._done(timeout_s, builder, candidate)

    def open_gate(self, value: int) -> None:
        """Let the GPU work that is held with this value, or a smaller one, start."""
        self.gate[:4].view(torch.int32).fill_(value)

    def _done(self, timeout_s: float, builder: Builder, candidate: Candidate) -> Done:
        reply = self._reply(timeout_s, builder, candidate)
        if isinstance(reply, ReadyLine):
            reply = self._reply(timeout_s, builder, candidate)
        if isinstance(reply, ReadyLine):
            raise ProtocolError("it said `ready` twice")
        return reply.done

    def _reply(self, timeout_s: float, builder: Builder, candidate: Candidate) -> DoneLine | ReadyLine:
        deadline = time.monotonic() + timeout_s
        while True:
            self.control.settimeout(max(0.001, deadline - time.monotonic()))
            message = self._wire.receive()
            if message is None:
                raise self._death()
            reply = parse_reply(message)
            if isinstance(reply, DoneLine | ReadyLine):
                return reply
            if isinstance(reply, FaultLine):
                raise self._fault(reply.fault)
            started = time.monotonic()
            self._wire.send(self._build(reply, builder, candidate))
            self.build_seconds += time.monotonic() - started
            deadline += time.monotonic() - started

    def _poll_for_answer(self) -> None:
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        deadline = time.monotonic() + _EAGER_S
        while not poller.poll(0) and time.monotonic() < deadline:
            pass

    @contextlib.contextmanager
    def _failing_as_verdict(self, op: str, timeout_s: float) -> Iterator[None]:
        try:
            yield
        except CandidateFault:
            self._spent = True
            raise
        except TimeoutError as error:
            self._spent = True
            raise CandidateFault(
                Verdict.TIMEOUT, f"no answer within {timeout_s:.0f} s during {op}; the worker was killed."
            ) from error
        except (BrokenPipeError, ConnectionError) as error:
            self._spent = True
            raise self._death() from error
        except (ProtocolError, ValueError) as error:
            self._spent = True
            raise CandidateFault(
                Verdict.NO_RESULT, f"the worker's answer was disturbed during {op}: {error}"
            ) from error

    def pause(self) -> None:
        """Stop the worker and all it started, so that they neither write late nor take time from others."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused worker go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    @property
    def alive(self) -> bool:
        """False once the worker was seen to end, was silent for too long, or told of a fault (it ends after one)."""
        return not (self._ended or self._spent)

    def _build(self, line: BuildLine, builder: Builder, candidate: Candidate) -> dict[str, str]:
        try:
            built: BuiltExtension = builder.build(line.build, candidate)
        except BuildError as error:
            self.build_faults.append(error)
            return {"failed": error.message}
        self.extensions.append(built.report)
        return {"library": str(built.library), "module": built.module_name}

    def _fault(self, fault: WorkerFault) -> CandidateFault:
        where = f" (candidate.py: {'; '.join(fault.lines)})" if fault.lines else ""
        text = f"{fault.type}: {fault.message}{where}"
        match fault.kind:
            case "build":
                for error in self.build_faults:
                    if error.message.startswith(fault.message):
                        return CandidateFault(Verdict.BUILD_FAILED, error.message, error.diagnostics)
                return CandidateFault(Verdict.BUILD_FAILED, text)
            case "syntax":
                return CandidateFault(Verdict.BUILD_FAILED, text)
            case "contract":
                return CandidateFault(Verdict.CONTRACT_ERROR, fault.message)
            case "memory":
                return CandidateFault(Verdict.OUT_OF_MEMORY, text)
            case "exit":
                return CandidateFault(Verdict.NO_RESULT, f"the candidate ended its process with {text}")
            case _:
                return CandidateFault(Verdict.CRASHED, text)

    def _death(self) -> CandidateFault:
        self._ended = True
        code = self.server.reap(self.pid)
        printed = self._printed()
        if code is None or code >= 0:
            return CandidateFault(
                Verdict.NO_RESULT, f"the worker ended with exit code {code} and without an answer.{printed}"
            )
        name = signal.Signals(-code).name
        if -code == signal.SIGKILL:
            return CandidateFault(
                Verdict.OUT_OF_MEMORY, f"the worker was killed from outside ({name}), most likely for memory.{printed}"
            )
        return CandidateFault(Verdict.CRASHED, f"the worker was ended by {name}.{printed}")

    def _printed(self) -> str:
        """The end of what the candidate and its runtime printed; it often names the cause of a crash."""
        try:
            raw = (self.scratch / "printed.txt").read_bytes()[-4 * _PRINTED_TAIL :]
        except OSError:
            return ""
        lines = [line for line in raw.decode("utf-8", "replace").splitlines() if not _OUR_FRAMES.match(line)]
        text = "\n".join(lines).strip()[-_PRINTED_TAIL:]
        return f"\nIt had printed:\n{text}" if text else ""

    def close(self) -> None:
        """End the worker and everything in its process group, and drop its folder."""
        self._signal(signal.SIGKILL)
        self.control.close()
        if not self._ended:
            self._ended = True
            with contextlib.suppress(HarnessError):
                self.server.reap(self.pid)
        shutil.rmtree(self.scratch, ignore_errors=True)
