"""A candidate in a worker, as the judge handles it: lays out the shared memory and moves tensors across."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch

from tasks.errors import HarnessError
from tools.build import Builder
from tools.candidate import Candidate
from tools.replies import Done, Written
from tools.verdict import Verdict
from tools.worker.device_memory import DeviceMemoryError, OpenedMemory
from tools.worker.messages import (
    Call,
    Construct,
    Fill,
    Load,
    Probe,
    Recall,
    Region,
    Report,
    Request,
    Share,
    Slot,
    Stage,
    Timed,
    Trace,
)
from tools.worker.shared_memory import aligned, name_of, view
from tools.worker_memory import WorkerMemory
from tools.workers import CandidateFault, Worker

SLACK_BYTES = 64 << 20
"""Room beyond the tensors that are expected, so that an output of the wrong dtype still fits."""
INPUT_SETS = 4
"""Timed inputs take turns in this many places. No two calls in a row share an address, and what a place does to the
time (which memory banks, which part of the cache) is met on both sides of a measurement."""
MOST_HELD = 3
"""Outputs of up to so many earlier calls stay in memory, for the same reason."""
MOST_TAKEN_BYTES = 4 << 30
"""A GPU takes longer to write more than this than the judge takes to stop its worker, so nothing can be gained by
saying that it is done; and of outputs that large there is to be no second copy."""
ADDRESS_SLACK = 4096
"""Bytes by which timed inputs may move within their place."""
READY_S = 0.05
"""Launching takes a millisecond at most; a call that is not queued by then waits for the GPU itself."""


@dataclass(frozen=True)
class Limits:
    """How long each step of a candidate may take, in seconds; builds have their own limit."""

    load_s: float = 60.0
    call_s: float = 60.0
    rounds_s: float = 2.0
    """About how long all rounds of a measurement may take beyond the fewest; more of them narrow its interval."""


@dataclass(frozen=True)
class Returned:
    """What one call left in the shared memory, moved to the judge's device."""

    outputs: list[tuple[str, torch.Tensor]]
    """Outputs by path, then updated buffers as `state NAME`."""
    inputs: list[torch.Tensor]
    """The inputs as they were after the call."""
    computing: dict[str, int] = field(default_factory=dict)
    """Operators that computed, by name, with how often."""
    launched: dict[str, tuple[int, int]] = field(default_factory=dict)
    """GPU kernels by name: how often, and nanoseconds in all."""
    launch_error: str = ""
    """What the CUDA runtime says of a launch that failed in the call; empty where none did."""


@dataclass(frozen=True)
class _TimedLayout:
    """Where inputs and outputs of timed calls lie in the memory that they share."""

    offset: int
    set_bytes: int
    outputs: Region


Named = list[tuple[str, torch.Tensor]]


class Subject:
    """One candidate in one worker. Every method may raise `CandidateFault`."""

    def __init__(
        self,
        worker: Worker,
        builder: Builder,
        candidate: Candidate,
        device: str,
        limits: Limits,
        shares_memory: Callable[[], bool] = lambda: False,
    ) -> None:
        """`shares_memory` says whether a worker without a candidate can share GPU memory with the judge; it is asked
        where this one could not."""
        self.candidate = candidate
        self.worker = worker
        self.device = device
        self._builder = builder
        self._limits = limits
        self._shares_memory = shares_memory
        self._layout = _TimedLayout(0, 0, Region(0, 0))
        self._memory = worker.memory
        """Where tensors of untimed calls lie."""
        self._timed_memory = worker.memory
        self._timed = Timed((), (), Region(0, 0), 0, 0)
        self._own_memory: WorkerMemory | None = None
        """The worker's, where outputs of timed calls are read from it."""
        self._calls = 0
        self.ready = True
        """Whether the last timed call that was begun said so; if not, it waits for the GPU, thus for its gate."""
        self._opened: list[OpenedMemory] = []

    def load(self, worker_device: str, *, allow_tf32: bool) -> Done:
        """Execute the candidate's text."""
        return self._ask(Load(self.candidate.text, worker_device, allow_tf32), self._limits.load_s)

    def share(self, size_bytes: int) -> None:
        """Have tensors of untimed calls lie in GPU memory that both processes map, not in the host's.

        Raises:
            HarnessError: the GPU's driver refuses to share memory between processes.
        """
        self._memory = self._shared(Share(size_bytes), size_bytes)

    def construct(self, init_inputs: str, *, training: bool) -> Done:
        """Make a new `ModelNew`."""
        return self._ask(Construct(init_inputs, training), self._limits.load_s)

    def recall(self, number: int) -> Done:
        """Go on with the model that was made as this one, counted from 0."""
        return self._ask(Recall(number), self._limits.call_s)

    def probe(self, inputs: Named) -> Done:
        """Call forward only to see which extension it builds."""
        slots, _ = self._place(inputs, 0)
        return self._ask(Probe(slots), self._limits.call_s)

    def fill(self, state: dict[str, torch.Tensor]) -> Done:
        """Give the model its parameters and buffers, and let it prepare."""
        slots, _ = self._place(list(state.items()), 0)
        return self._ask(Fill(slots), self._limits.call_s)

    def call(self, inputs: Named, state: Named, expected_bytes: int, *, watch: bool = True) -> Returned:
        """Call the model once; the memory its outputs will take is poisoned with NaN before.

        Args:
            inputs: the call's inputs by name.
            state: buffers that the reference updates, with their values before the call.
            expected_bytes: what the outputs take.
            watch: note operators and kernels.
        """
        input_slots, offset = self._place(inputs, 0)
        state_slots, offset = self._place(state, offset)
        region = self._poisoned(offset, expected_bytes)
        done = self._ask(Call(input_slots, state_slots, region, watch), self._limits.call_s)
        return self._returned(done, self._memory, region, copied=self.device == "cuda")

    def trace(self, inputs: Named, state: Named, flush_bytes: int) -> Done:
        """Call the model once on a GPU, and say which kernels ran in which form.

        Args:
            inputs: the call's inputs by name.
            state: buffers that the reference updates, with their values before the call.
            flush_bytes: what is read before the call, so that inputs come from no cache.
        """
        input_slots, offset = self._place(inputs, 0)
        state_slots, _ = self._place(state, offset)
        return self._ask(Trace(input_slots, state_slots, flush_bytes), self._limits.call_s)

    def stage(
        self, state_bytes: int, input_bytes: int, output_bytes: int, *, watch: bool, in_place: bool = False
    ) -> None:
        """Agree on where inputs and outputs of timed calls lie: on a GPU, in its memory.

        Args:
            state_bytes: room at the start of the shared memory for buffers that the reference updates.
            input_bytes: what the inputs of one call take.
            output_bytes: what the outputs and updated buffers take that are expected.
            watch: have operators recorded until `report`.
            in_place: on the host, have outputs stay in the worker's own memory, from which they are read.

        Raises:
            HarnessError: the GPU's driver refuses to share memory between processes.
        """
        offset = 0 if self.device == "cuda" else aligned(state_bytes + 4096)
        set_bytes = aligned(input_bytes + 4096) + ADDRESS_SLACK
        start = aligned(offset + INPUT_SETS * set_bytes)
        room = output_bytes + SLACK_BYTES
        self._layout = _TimedLayout(offset, set_bytes, Region(start, room))
        self._own_memory = WorkerMemory(self.worker) if in_place else None
        stage = Stage(start + room, watch, in_place)
        if self.device == "cuda":
            self._timed_memory = self._shared(stage, start + room)
        else:
            self._ask(stage, self._limits.call_s)

    def begin_timed(
        self, inputs: Named, state: Named, address_offset: int, held: int, *, gated: bool
    ) -> list[torch.Tensor]:
        """Begin a timed call; returns the places that its inputs must be written to before `finish_timed`.

        Args:
            inputs: tensors of the inputs' names, shapes and dtypes; their values do not matter.
            state: buffers that the reference updates, with their values before the call.
            address_offset: by how many bytes the inputs move, less than `ADDRESS_SLACK`.
            held: how many earlier calls' outputs stay in memory, at most `MOST_HELD`.
            gated: queue the whole call on the GPU before it gets its inputs.
        """
        self._calls += 1
        offset = self._layout.offset + self._calls % INPUT_SETS * self._layout.set_bytes + address_offset
        slots = []
        for name, tensor in inputs:
            slots.append(Slot(name, name_of(tensor.dtype), tuple(tensor.shape), offset))
            offset = aligned(offset + tensor.numel() * tensor.element_size())
        state_slots, _ = self._place(state, 0)
        self._timed = Timed(tuple(slots), state_slots, self._layout.outputs, self._calls if gated else 0, held)
        try:
            self.ready = self.worker.begin(self._timed, READY_S, self._limits.call_s, self._builder, self.candidate)
        except BaseException:
            # A GPU that waits for its gate cannot be given back.
            self.worker.open_gate(self._calls)
            raise
        return [view(self._timed_memory, slot) for slot in slots]

    def poison_timed(self, expected_bytes: int) -> None:
        """Fill the place of a timed call's outputs with NaN, where they have one in the shared memory."""
        if self._own_memory is not None:
            return
        region = self._layout.outputs
        view(self._timed_memory, Slot("poison", "uint8", (min(expected_bytes, region.capacity),), region.offset)).fill_(
            255
        )

    def finish_timed(self, meanwhile: AbstractContextManager[None] | None = None) -> Done:
        """Let the call that was begun go on, and wait for its end, in the context of `meanwhile`."""
        eagerly, limit_s = self.device == "cuda", self._limits.call_s
        return self.worker.finish(
            self._timed, limit_s, self._builder, self.candidate, eagerly=eagerly, meanwhile=meanwhile
        )

    def report(self) -> Done:
        """End the recording of operators: those that computed, and how many timed calls it holds."""
        return self._ask(Report(), self._limits.call_s)

    def returned_by_last_timed(self, done: Done) -> Returned:
        """What the last timed call left behind, valid until the next one; on the host its worker must be stopped. On a
        GPU, which cannot be stopped, the outputs are copied to memory that the worker has no hand in, unless they are
        larger than `MOST_TAKEN_BYTES`."""
        inputs = [view(self._timed_memory, slot) for slot in self._timed.inputs]
        if self._own_memory is not None:
            return Returned(self._own_memory.left(done, self._layout.outputs.capacity), inputs)
        copied = self.device == "cuda" and self._layout.outputs.capacity <= MOST_TAKEN_BYTES
        return replace(self._returned(done, self._timed_memory, self._layout.outputs, copied=copied), inputs=inputs)

    def require_bounded(self) -> None:
        """Raise `CandidateFault` where the worker takes more than its budget now; after calls that is not always seen
        at once."""
        self.worker.require_bounded()

    def kill(self) -> None:
        """Kill the worker, without waiting until it is gone; `close` does, and must follow."""
        while self._opened:
            self._opened.pop().close()
        self.worker.kill()

    def close(self) -> None:
        """End the worker."""
        self.kill()
        self.worker.close()

    def _ask(self, request: Request, limit_s: float) -> Done:
        if self._memory.is_cuda:
            # What was written there must be there before the worker reads it.
            torch.cuda.synchronize()
        return self.worker.ask(request, limit_s, self._builder, self.candidate)

    def _shared(self, request: Share | Stage, size_bytes: int) -> torch.Tensor:
        """The GPU memory that the worker allocates for a request, opened here by the handle that it tells."""
        try:
            return self._open(self._ask(request, self._limits.call_s).handle, size_bytes)
        except CandidateFault as fault:
            # What it has allocated must not be the reason that another worker can share none.
            self.worker.close()
            if self._shares_memory():
                raise
            raise HarnessError(f"GPU memory cannot be shared with workers: {fault.message}") from fault

    def _open(self, handle: str, size_bytes: int) -> torch.Tensor:
        try:
            opened = OpenedMemory(handle, size_bytes)
        except (ValueError, DeviceMemoryError) as error:
            raise CandidateFault(Verdict.NO_RESULT, f"the worker's handle of GPU memory is none: {error}.") from error
        self._opened.append(opened)
        return opened.tensor

    def _place(self, tensors: Named, offset: int) -> tuple[tuple[Slot, ...], int]:
        slots = []
        for name, tensor in tensors:
            offset = aligned(offset)
            slot = Slot(name, name_of(tensor.dtype), tuple(tensor.shape), offset)
            try:
                view(self._memory, slot).copy_(tensor)
            except ValueError as error:
                raise HarnessError(
                    f"the shared memory of {self._memory.numel()} bytes is too small: {error}"
                ) from error
            slots.append(slot)
            offset += tensor.numel() * tensor.element_size()
        return tuple(slots), aligned(offset)

    def _poisoned(self, offset: int, expected_bytes: int) -> Region:
        """All bits set are NaN in every floating dtype, so an output that was not written is seen."""
        size = min(expected_bytes, self._memory.numel() - offset)
        if size > 0:
            view(self._memory, Slot("poison", "uint8", (size,), offset)).fill_(255)
        return Region(offset, self._memory.numel() - offset)

    def _returned(self, done: Done, memory: torch.Tensor, region: Region, *, copied: bool) -> Returned:
        outputs = [(item.name, self._read(item, memory, region, copied)) for item in done.outputs]
        outputs += [(f"state {item.name}", self._read(item, memory, region, copied)) for item in done.state]
        inputs = [self._read(item, memory, region, copied) for item in done.inputs]
        return Returned(outputs, inputs, done.computing, done.launched, done.launch_error)

    def _read(self, item: Written, memory: torch.Tensor, region: Region, copied: bool) -> torch.Tensor:
        """What the worker wrote, on the judge's device; the worker's word on where and what is checked.

        `copied` is for memory that a running worker may go on writing to while it is being compared.
        """
        if item.offset is None:
            raise CandidateFault(
                Verdict.INCORRECT,
                f"{item.name} has shape {item.shape} and dtype {item.dtype}, which is far larger than the reference's.",
            )
        if item.offset < region.offset:
            raise CandidateFault(Verdict.NO_RESULT, f"the worker's answer points outside its region for {item.name}.")
        try:
            tensor = view(memory, Slot(item.name, item.dtype, item.shape, item.offset))
        except (ValueError, RuntimeError) as error:
            raise CandidateFault(Verdict.NO_RESULT, f"the worker's answer cannot be read: {error}") from error
        return tensor.to(self.device, copy=copied)
