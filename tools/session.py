"""What a judge keeps for one task on one target: the fork server, the oracle, the draws, and how to start a subject."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch

from tasks.errors import HarnessError, KernelwrightError, UnavailableError
from tasks.loader import Task
from tasks.spec import Mode, Precision, Target
from tools.ahead import Ahead
from tools.alternatives import Alternative, alternatives
from tools.briefing import Machine
from tools.build import Builder
from tools.candidate import Candidate
from tools.card import Card, card_in_use
from tools.clock_marks import empty_call_ns
from tools.draws import Draws, input_shape
from tools.fork_server import ForkServer
from tools.fresh_inputs import CacheFlush
from tools.lease import lease
from tools.machine import cache_bytes, machine
from tools.oracle import Oracle
from tools.server_process import Processes
from tools.subject import ADDRESS_SLACK, INPUT_SETS, SLACK_BYTES, Limits, Subject
from tools.toolchain import find_toolchain
from tools.usage import memory_limit_bytes
from tools.worker.shared_memory import aligned, dtype_of
from tools.workload import Workload, workload

SHARED_MEMORY_SHARE = 0.125
"""Of a GPU's free memory, what untimed calls may share at most: the worker and the oracle need theirs."""


@dataclass
class Session:
    """Made once for a judge; everything in it is built on first use."""

    task: Task
    target: Target
    limits: Limits
    progress: Callable[[str], None]
    leased_s: float = 0.0
    """How long the device was held, all times together."""
    processes: Processes | None = None
    """What others use, too, to fork workers; else the session starts its own."""
    works_ahead: bool = False
    """Whether the next worker that will be needed is started, on a GPU, while this one is verified or warms up."""
    _leased: bool = False
    _killed: list[Subject] = field(default_factory=list)
    """Those that nobody has waited for yet."""

    @contextmanager
    def device_lease(self) -> Iterator[None]:
        """Hold the device for the time of the block, or of the outermost one; the time that others are waited for does
        not count."""
        if self._leased:
            yield
            return
        with lease(self.device, self.progress):
            began = time.monotonic()
            self._leased = True
            try:
                yield
            finally:
                self._leased = False
                # What goes on starting or ending would do so beside another's measurement.
                self.settle()
                self.leased_s += time.monotonic() - began

    @property
    def mode(self) -> Mode:
        """The task's mode."""
        return self.task.mode

    @property
    def precision(self) -> Precision:
        """The task's precision class on this target."""
        return self.task.facts.precision_on(self.target)

    @cached_property
    def device(self) -> str:
        """The judge's and the workers' device.

        Raises:
            UnavailableError: the target is `cuda` and PyTorch sees no GPU.
        """
        if self.target is Target.CPU:
            return "cpu"
        if not torch.cuda.is_available():
            raise UnavailableError(
                "the target is cuda, but PyTorch sees no GPU on this machine; kernels can be built here, not run. "
                "Use a machine with an NVIDIA GPU, or --target cpu; `kernelwright doctor` says what is missing."
            )
        return "cuda"

    @cached_property
    def server(self) -> ForkServer:
        """The warm process that workers are forked from."""
        return ForkServer(
            memory_limit_bytes() if self.target is Target.CPU else None,
            gpu=self.target is Target.CUDA,
            process=self.processes and self.processes.candidates,
        )

    @cached_property
    def server_for_baselines(self) -> ForkServer:
        """The same, or one in which more is imported."""
        process = self.processes and self.processes.baselines
        return self.server if process is None else ForkServer(process=process)

    @cached_property
    def ahead(self) -> Ahead:
        """The workers that were started ahead."""
        return Ahead(self.server.spawn, self.device)

    @cached_property
    def builder(self) -> Builder:
        """Builds the extensions that candidates ask for."""
        return Builder(find_toolchain())

    @cached_property
    def oracle(self) -> Oracle:
        """The reference in float64."""
        return Oracle(self.task, self.target, self.device)

    @cached_property
    def draws(self) -> Draws:
        """The secret draws."""
        return Draws(self.device)

    @cached_property
    def host_draws(self) -> Draws:
        """Secret draws on the host, for what needs no GPU."""
        return Draws("cpu")

    @cached_property
    def cache_flush(self) -> CacheFlush:
        """Empties the device's caches."""
        return CacheFlush(self.device, cache_bytes(self.target))

    @cached_property
    def card(self) -> Card | None:
        """The GPU in use; None on the host, and where nothing is told of it."""
        return card_in_use() if self.device == "cuda" else None

    @cached_property
    def marks_ns(self) -> int:
        """What the device's clock shows for a call that does nothing; 0 on the host, where it is less than a tick."""
        return empty_call_ns() if self.device == "cuda" else 0

    def synchronize(self) -> None:
        """Wait for what the judge itself has the device do."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    @property
    def machine_or_host(self) -> Machine:
        """The target's machine, or the host where the target cannot run here."""
        try:
            _ = self.device
        except UnavailableError:
            return machine(Target.CPU, self.precision)
        return self.machine

    @cached_property
    def machine(self) -> Machine:
        """The machine and its peaks."""
        return machine(self.target, self.precision)

    @cached_property
    def workload(self) -> Workload:
        """Operations and bytes on the benchmark shape."""
        return workload(self.task, self.target)

    @cached_property
    def alternatives(self) -> list[Alternative]:
        """What the reference answers with a mistake in it; empty where no mistake can be put into it."""
        try:
            return alternatives(self.task, self.target, self.device)
        except KernelwrightError:
            return []

    @cached_property
    def state_bytes(self) -> int:
        """Bytes of all parameters and buffers."""
        return sum(value.numel() * value.element_size() for value in self.oracle.template.values())

    def memory_bytes(self, sizes: dict[str, int]) -> int:
        """Shared memory for calls of a shape: inputs, the same after the call (or of the next timed call), outputs,
        parameters. The output's size is taken to grow with the input's."""
        inputs = self.input_bytes(sizes)
        growth = max(1.0, inputs / max(1, self.workload.input_bytes))
        places = INPUT_SETS * (inputs + 2 * ADDRESS_SLACK)
        return int(places + 2 * self.workload.output_bytes * growth + 3 * self.state_bytes)

    def input_bytes(self, sizes: dict[str, int]) -> int:
        """Bytes of all inputs of a shape."""
        total = 0
        for spec in self.task.facts.inputs:
            count = 1
            for size in input_shape(spec, sizes):
                count *= size
            total += count * dtype_of(spec.dtype).itemsize
        return total

    def subject(
        self,
        candidate: Candidate,
        memory_bytes: int,
        *,
        limits: Limits | None = None,
        device: str | None = None,
        trusted: bool = False,
    ) -> Subject:
        """A fresh worker for a candidate, its text not executed yet; `device` is where the judge keeps its tensors."""
        where = self.device if device is None else device
        size_bytes = aligned(memory_bytes + SLACK_BYTES)
        worker = self.ahead.take(size_bytes) if where == "cuda" and not trusted else None
        if worker is None:
            worker = (self.server_for_baselines if trusted else self.server).spawn(size_bytes, trusted=trusted)
        return Subject(worker, self.builder, candidate, where, limits or self.limits, lambda: self.shares_device_memory)

    @cached_property
    def shares_device_memory(self) -> bool:
        """Whether the GPU's driver shares memory with a worker that has no candidate, which could refuse."""
        size_bytes = aligned(SLACK_BYTES)
        subject = Subject(self.server.spawn(size_bytes), self.builder, Candidate(""), self.device, self.limits)
        try:
            subject.share(size_bytes)
        except HarnessError:
            return False
        finally:
            subject.close()
        return True

    def ready(self, subject: Subject, state: dict[str, torch.Tensor], *, shared_bytes: int = 0) -> int:
        """Load, construct and fill; returns the nanoseconds that `prepare` took.

        `shared_bytes` is what tensors of untimed calls take: they lie in GPU memory that both processes map, if there
        is plenty, because moving them through the host's takes longer than most calls.
        """
        subject.load(self.device, allow_tf32=self.precision is Precision.TF32)
        if shared_bytes and self.device == "cuda":
            size_bytes = aligned(shared_bytes + SLACK_BYTES)
            if size_bytes <= SHARED_MEMORY_SHARE * torch.cuda.mem_get_info()[0]:
                subject.share(size_bytes)
        return self.construct(subject, state)

    def construct(self, subject: Subject, state: dict[str, torch.Tensor]) -> int:
        """A new instance with new parameters in a worker whose text is executed."""
        subject.construct(self.oracle.init_inputs, training=self.mode == "train")
        return subject.fill(state).prepare_ns

    def updated_state(self, state: dict[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """The buffers that a call updates, with their values before it."""
        return [(name, state[name]) for name in self.oracle.updated]

    @property
    def server_pid(self) -> int | None:
        """The process of its own that workers are forked from, if it was started."""
        return self.server.pid if self.processes is None and "server" in self.__dict__ else None

    def start_ahead(self) -> None:
        """Start the worker that will be needed next, where that is wanted; does not wait for it."""
        if self.works_ahead and self.device == "cuda":
            self.ahead.start(1)

    def end(self, subject: Subject) -> None:
        """End a worker. A GPU's driver takes long to clear up after one (65 ms on an H200), so within a lease that is
        waited for by `settle` only; where more than a quarter of the GPU's memory is in use, at once, for the next one
        could lack what this one still holds."""
        if not (self._leased and self.device == "cuda"):
            subject.close()
            return
        self._killed.append(subject)
        try:
            free, total = torch.cuda.mem_get_info()
        except RuntimeError:
            # Whatever has become of the GPU is no reason to lose the verdict that is on its way.
            free, total = 0, 1
        subject.kill()
        if total - free > total / 4:
            self._await_killed()

    def settle(self) -> None:
        """Wait until nothing of ours starts or ends any more."""
        self._await_killed()
        if "ahead" in self.__dict__:
            self.ahead.settle()

    def _await_killed(self) -> None:
        while self._killed:
            self._killed.pop().close()

    @property
    def standing_ahead(self) -> int:
        """How many workers were started ahead and wait for a candidate."""
        return len(self.ahead) if "ahead" in self.__dict__ else 0

    def drop_ahead(self) -> None:
        """End the workers that were started ahead, which takes some of a GPU's time, so the device is held for it."""
        if self.standing_ahead:
            with self.device_lease():
                self.ahead.close()

    def close(self) -> None:
        """End the fork server, if it was started, and what was started ahead; nobody is waited for."""
        self._await_killed()
        if "ahead" in self.__dict__:
            self.ahead.close()
        if "server" in self.__dict__:
            self.server.close()
