"""Asks and ends workers; `tools.candidate_fault` maps every way a worker can fail to a verdict.

While the judge waits for a worker it looks at what the worker's process group takes, and kills it beyond its `Budget`.
A full folder and too many processes or threads are `crashed`, not `out_of_memory`: where the folder is a file system of
bounded size the candidate's own write fails, which is `crashed`, and a verdict must not depend on the sandbox's tier.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from tasks.errors import HarnessError, ProtocolError
from tools.build import Builder, BuiltExtension
from tools.cache import Hold
from tools.candidate import Candidate
from tools.candidate_fault import CandidateFault as CandidateFault
from tools.candidate_fault import death, fault_told, printed_end
from tools.compilation import BuildError
from tools.folders import remove_folder
from tools.kept_builds import copy_of
from tools.mappings import MappedFile, opened
from tools.replies import BuildLine, Done, DoneLine, FaultLine, ReadyLine, WorkerFault, parse_reply
from tools.results import Extension
from tools.server_process import START_TIMEOUT_S
from tools.standstill import WORKS_ON, Standing
from tools.usage import Budget, FileIdentity, excess, usage
from tools.verdict import Verdict
from tools.worker.messages import GO, Call, Request, Timed, Wire, request_to_json

_LOOK_EVERY_S = 0.05
_LOOK_DURING_TIMED_S = 1.0
"""The judge's wall time of a timed call is evidence: a look that delays the answer by some milliseconds must come where
they are nothing."""
_LOOK_SHARE = 0.1
"""The share of the waiting that looking may take, on a machine with very many processes."""
_EAGER_S = 0.1
_SETUP_LINE_BYTES = 64
_CREDENTIALS = struct.Struct("=iII")
"""struct ucred: process, user, group."""


class Starter(Protocol):
    """Who started a worker, and sees it end."""

    def ended(self, pid: int) -> bool:
        """Whether a worker has ended."""

    def reap(self, pid: int) -> int | None:
        """The exit code of an ended worker, negative for a signal; None where it does not end."""


@dataclass
class Worker:
    """The judge's end of one worker."""

    server: Starter
    number: int
    """Its process number in the server's own process namespace."""
    control: socket.socket
    """From a server with a process namespace of its own, one that asks for its senders' credentials."""
    memory: torch.Tensor
    """uint8, shared with the worker."""
    gate: torch.Tensor
    """The page that holds the gate's word, shared too."""
    scratch: Path
    budget: Budget
    memory_identity: FileIdentity
    """Of the shared memory."""
    extensions: list[Extension] = field(default_factory=list)
    """What its candidate has built or taken from the cache so far."""
    build_faults: list[BuildError] = field(default_factory=list)
    build_seconds: float = 0.0
    libraries: dict[MappedFile, Path] = field(default_factory=dict)
    """What was built for its candidate: the copies that the worker got, and where their content is kept."""

    def __post_init__(self) -> None:
        self._wire = Wire(self.control)
        self._ended = False
        self._closed = False
        self._spent = False
        self._holds: list[Hold] = []
        self.pid = 0
        """Its process number here, once it stands; 0 where it never stood."""
        self._standing: Standing | None = None
        self._looked_at = 0.0
        self._look_cost_s = 0.0
        self._least_between_looks_s = 0.0

    def await_setup(self) -> None:
        """Wait until the worker stands; raises HarnessError where it does not."""
        self.control.settimeout(START_TIMEOUT_S)
        try:
            line, told, _, _ = self.control.recvmsg(_SETUP_LINE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        except OSError as error:
            raise HarnessError(f"a worker did not start: {error}") from error
        if not line:
            raise HarnessError(f"a worker could not be set up: {self.death().message}")
        senders = [_CREDENTIALS.unpack(data)[0] for _, kind, data in told if kind == socket.SCM_CREDENTIALS]
        self.pid = senders[0] if senders else self.number
        # Without its number the worker could be neither stopped nor killed.
        if self.pid <= 0:
            raise HarnessError("a worker did not start: the kernel does not tell its process number")
        self._standing = Standing(self.pid)

    def ask(self, request: Request, timeout_s: float, builder: Builder, candidate: Candidate) -> Done:
        """Send a request and wait for its answer, building what the candidate asks for meanwhile.

        The time limit does not count builds, which have their own.

        Raises:
            CandidateFault: the candidate failed, or the worker ended, was silent or broke the protocol.
            HarnessError, UnavailableError: a build could not be tried.
        """
        with self._failing_as_verdict(request.op, timeout_s):
            self._least_between_looks_s = _LOOK_EVERY_S if isinstance(request, Call) else 0.0
            self._wire.send(request_to_json(request))
            return self._done(timeout_s, builder, candidate, timed=isinstance(request, Timed))

    def tell(self, request: Request) -> None:
        """Send a request whose answer `hear` waits for; there is no candidate in the worker yet."""
        with self._failing_as_verdict(request.op, 0.0):
            self._wire.send(request_to_json(request))

    def hear(self, timeout_s: float) -> None:
        """Wait for the answer to what the worker was told; raises CandidateFault where it does not come."""
        with self._failing_as_verdict("warm", timeout_s):
            reply = parse_reply(self._next(time.monotonic() + timeout_s, timed=False))
            if isinstance(reply, FaultLine):
                raise self._fault(reply.fault)
            if not isinstance(reply, DoneLine):
                raise ProtocolError("it asked for something before it had a candidate")

    def begin(self, request: Timed, ready_s: float, timeout_s: float, builder: Builder, candidate: Candidate) -> bool:
        """Send a timed request and wait until the worker is ready for its inputs; raises as `ask`.

        Returns False where a gated call does not say so within `ready_s`: then it waits for the GPU, thus for the gate.
        """
        with self._failing_as_verdict(request.op, timeout_s):
            # What earlier timed calls took; no clock runs yet.
            if time.monotonic() - self._looked_at > _LOOK_DURING_TIMED_S:
                self.require_bounded()
            self._wire.send(request_to_json(request))
            if request.gate and not select.select([self.control], [], [], ready_s)[0]:
                return False
            if not isinstance(self._reply(timeout_s, builder, candidate, timed=True), ReadyLine):
                raise ProtocolError("it answered before it was given its inputs")
            return True

    def finish(
        self,
        request: Timed,
        timeout_s: float,
        builder: Builder,
        candidate: Candidate,
        *,
        eagerly: bool,
        meanwhile: AbstractContextManager[None] | None = None,
    ) -> Done:
        """Let a timed request that was begun go on, and wait for its answer; raises as `ask`.

        Args:
            request: what `begin` was given.
            timeout_s: as of `ask`.
            builder: as of `ask`.
            candidate: as of `ask`.
            eagerly: poll for the answer for a while before sleeping: waking up takes some 50 us, more after a longer
                sleep. Not on the host target, where it would take a core from the candidate.
            meanwhile: entered before the request goes on, left when it is answered.
        """
        with self._failing_as_verdict(request.op, timeout_s), meanwhile or contextlib.nullcontext():
            if request.gate:
                self.open_gate(request.gate)
            else:
                self._wire.send(GO)
            if eagerly:
                self._poll_for_answer()
            done = self._done(timeout_s, builder, candidate, timed=True)
        if self._standing is not None:
            self._standing.mark()
        return done

    def open_gate(self, value: int) -> None:
        """Let the GPU work that is held with this value, or a smaller one, start."""
        self.gate[:4].view(torch.int32).fill_(value)

    def _done(self, timeout_s: float, builder: Builder, candidate: Candidate, *, timed: bool) -> Done:
        reply = self._reply(timeout_s, builder, candidate, timed=timed)
        if isinstance(reply, ReadyLine):
            reply = self._reply(timeout_s, builder, candidate, timed=timed)
        if isinstance(reply, ReadyLine):
            raise ProtocolError("it said `ready` twice")
        return reply.done

    def _reply(self, timeout_s: float, builder: Builder, candidate: Candidate, *, timed: bool) -> DoneLine | ReadyLine:
        deadline = time.monotonic() + timeout_s
        while True:
            reply = parse_reply(self._next(deadline, timed))
            if isinstance(reply, DoneLine | ReadyLine):
                return reply
            if isinstance(reply, FaultLine):
                raise self._fault(reply.fault)
            started = time.monotonic()
            # While a compiler runs, nobody looks at what the worker takes.
            self.pause()
            answer = self._build(reply, builder, candidate)
            self.resume()
            self._answer(answer)
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
            raise self.death() from error
        except (ProtocolError, ValueError) as error:
            self._spent = True
            raise CandidateFault(
                Verdict.NO_RESULT, f"the worker's answer was disturbed during {op}: {error}"
            ) from error

    def _next(self, deadline: float, timed: bool) -> dict[str, Any]:
        """The worker's next line, with a look at the worker in each interval without one, and after an untimed one.

        After calls, of which there are many, only now and then: who asks for them looks at their end.
        """
        while True:
            interval = _LOOK_DURING_TIMED_S if timed else max(_LOOK_EVERY_S, self._look_cost_s / _LOOK_SHARE)
            self.control.settimeout(max(0.001, min(deadline - time.monotonic(), interval)))
            try:
                message = self._wire.receive()
            except TimeoutError:
                self.require_bounded()
                if time.monotonic() >= deadline:
                    raise
                if not self.server.ended(self.number):
                    continue
                message = self._last_line()
            if message is None:
                raise self.death()
            if not timed and time.monotonic() - self._looked_at >= self._least_between_looks_s:
                self.require_bounded()
            return message

    def _last_line(self) -> dict[str, Any] | None:
        """What an ended worker had still sent; a child of it may hold the stream open."""
        self.control.settimeout(0.001)
        try:
            return self._wire.receive()
        except TimeoutError:
            return None

    def require_bounded(self) -> None:
        """Kill the worker and raise its fault where it takes more than its budget."""
        started = time.monotonic()
        taken = usage(self.pid, self.scratch, self.budget, self.memory_identity)
        self._looked_at = time.monotonic()
        self._look_cost_s = self._looked_at - started
        over = excess(taken, self.budget)
        if over is not None:
            self._spent = True
            self._signal(signal.SIGKILL)
            verdict = Verdict.OUT_OF_MEMORY if over.of == "memory" else Verdict.CRASHED
            raise CandidateFault(verdict, f"the worker {over.message}. It was killed, with all it had started.")

    def pause(self) -> int:
        """Stop the worker and all it started, so that they neither write late nor take time from others, and wait until
        they stand still; raises `CandidateFault` where they do not.

        Returns the nanoseconds that they worked after the answer to a timed call, as of `Standing.begin`.
        """
        if self._standing is None or not self.alive:
            self._signal(signal.SIGSTOP)
            return 0
        worked_ns = self._standing.begin()
        if worked_ns is None:
            self._spent = True
            raise CandidateFault(Verdict.IMPLAUSIBLE_TIME, WORKS_ON)
        return worked_ns

    def resume(self) -> None:
        """Let a paused worker go on; raises `CandidateFault` where it has worked meanwhile."""
        if self._standing is not None and not self._standing.end():
            self._spent = True
            raise CandidateFault(Verdict.IMPLAUSIBLE_TIME, WORKS_ON)
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        # Group 0 would be the judge's own.
        if self.pid > 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    @property
    def alive(self) -> bool:
        """False once the worker was seen to end, was silent for too long, or told of a fault (it ends after one)."""
        return not (self._ended or self._spent)

    def _build(self, line: BuildLine, builder: Builder, candidate: Candidate) -> BuiltExtension | BuildError:
        try:
            built = builder.build(line.build, candidate)
        except BuildError as error:
            # Its frames would keep this worker's memory until somebody collects cycles.
            self.build_faults.append(error.with_traceback(None))
            return error
        self.extensions.append(built.report)
        self._holds.append(built.hold)
        return built

    def _answer(self, built: BuiltExtension | BuildError) -> None:
        """Tell the worker how its build ended, with a copy of the library that is its own: of the cache, where others'
        lie, it sees nothing."""
        if isinstance(built, BuildError):
            self._wire.send({"failed": built.message})
            return
        copy = copy_of(built.library)
        self.libraries[opened(copy)] = built.library
        try:
            self._wire.send({"module": built.module_name}, copy)
        finally:
            os.close(copy)

    def _fault(self, fault: WorkerFault) -> CandidateFault:
        return fault_told(fault, self.build_faults, self.budget)

    def death(self) -> CandidateFault:
        """The fault of a worker that is gone, though nobody has ended it."""
        self._ended = True
        return death(self.server.reap(self.number), printed_end(self.scratch))

    def kill(self) -> None:
        """Kill the worker and everything in its process group; nobody waits for that, which `close` does later."""
        if self.control.fileno() >= 0:
            self._signal(signal.SIGKILL)
            self.control.close()

    def close(self) -> None:
        """End the worker and everything in its process group, and drop its folder; once is enough."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        if not self._ended:
            self._ended = True
            with contextlib.suppress(HarnessError):
                self.server.reap(self.number)
        for held in self._holds:
            held.close()
        remove_folder(self.scratch)
