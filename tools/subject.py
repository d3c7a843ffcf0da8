"""A candidate in a worker, as the judge handles it: lays out the shared memory and moves tensors across."""

from dataclasses import dataclass, field

import torch

from tasks.errors import HarnessError
from tools.build import Builder
from tools.candidate import Candidate
from tools.replies import Done, Written
from tools.verdict import Verdict
from tools.worker.device_memory import DeviceMemoryError, OpenedMemory
from tools.worker.messages import Call, Construct, Fill, Load, Probe, Refresh, Region, Slot, Stage, Timed
from tools.worker.refresh import refresh_into
from tools.worker.shared_memory import aligned, name_of, view
from tools.workers import CandidateFault, Worker

SLACK_BYTES = 64 << 20
"""Room beyond the tensors that are expected, so that an output of the wrong dtype still fits."""
PER_CALL_BYTES = 16 << 20
"""Room for what a timed call is told: scales, shifts, and buffers that the reference updates."""


@dataclass(frozen=True)
class Limits:
    """How long each step of a candidate may take, in seconds; builds have their own limit."""

    load_s: float = 60.0
    call_s: float = 60.0


@dataclass(frozen=True)
class Returned:
    """What one call left in the shared memory, moved to the judge's device."""

    outputs: list[tuple[str, torch.Tensor]]
    """Outputs by path, then updated buffers as `state NAME`."""
    inputs: list[torch.Tensor]
    """The inputs as they were after the call."""
    computing: dict[str, int] = field(default_factory=dict)
    """Operators that computed, by name, with how often."""


Named = list[tuple[str, torch.Tensor]]
Refreshes = list[tuple[int, torch.Tensor, torch.Tensor]]
"""Roll, scale and shift of each input of a timed call."""


class Subject:
    """One candidate in one worker. Every method may raise `CandidateFault`."""

    def __init__(self, worker: Worker, builder: Builder, candidate: Candidate, device: str, limits: Limits) -> None:
        self.candidate = candidate
        self.worker = worker
        self.device = device
        self._builder = builder
        self._limits = limits
        self._bases: list[torch.Tensor] = []
        self._last_refreshes: Refreshes = []
        self._free = 0
        self._region = Region(0, 0)
        self._opened: OpenedMemory | None = None

    def load(self, worker_device: str, *, allow_tf32: bool) -> Done:
        """Execute the candidate's text."""
        request = Load(self.candidate.text, worker_device, allow_tf32)
        return self.worker.ask(request, self._limits.load_s, self._builder, self.candidate)

    def construct(self, init_inputs: str, *, training: bool) -> Done:
        """Make a new `ModelNew`."""
        return self.worker.ask(Construct(init_inputs, training), self._limits.load_s, self._builder, self.candidate)

    def probe(self, inputs: Named) -> Done:
        """Call forward only to see which extension it builds."""
        slots, _ = self._place(inputs, 0)
        return self.worker.ask(Probe(slots), self._limits.call_s, self._builder, self.candidate)

    def fill(self, state: dict[str, torch.Tensor]) -> Done:
        """Give the model its parameters and buffers, and let it prepare."""
        slots, _ = self._place(list(state.items()), 0)
        return self.worker.ask(Fill(slots), self._limits.call_s, self._builder, self.candidate)

    def call(self, inputs: Named, state: Named, expected_bytes: int) -> Returned:
        """Call the model once, watched; the memory its outputs will take is poisoned with NaN before."""
        input_slots, offset = self._place(inputs, 0)
        state_slots, offset = self._place(state, offset)
        region = self._poisoned(offset, expected_bytes)
        request = Call(input_slots, state_slots, region)
        done = self.worker.ask(request, self._limits.call_s, self._builder, self.candidate)
        return self._returned(done, self.worker.memory, region)

    def stage(self, bases: Named, flush_bytes: int) -> None:
        """Hand over the tensors that timed inputs are made from, and agree on where timed outputs go.

        Raises:
            HarnessError: the GPU's driver refuses to share memory between processes.
        """
        slots, self._free = self._place(bases, 0)
        self._bases = [tensor for _, tensor in bases]
        start = aligned(self._free + PER_CALL_BYTES)
        self._region = Region(start, self.worker.memory.numel() - start)
        request = Stage(slots, flush_bytes, self._region)
        done = self.worker.ask(request, self._limits.call_s, self._builder, self.candidate)
        if done.handle and self.device == "cuda":
            self._region = Region(0, self._region.capacity)
            try:
                self._opened = OpenedMemory(done.handle, self._region.capacity)
            except ValueError as error:
                raise CandidateFault(Verdict.NO_RESULT, "the worker's handle of GPU memory is no handle.") from error
            except DeviceMemoryError as error:
                raise HarnessError(f"GPU memory cannot be shared with the worker: {error}.") from error

    def timed(self, refreshes: Refreshes, state: Named, start_offset: int) -> Done:
        """Time one call on new inputs; `refreshes` holds roll, scale and shift of each input."""
        offset = self._free
        messages = []
        for roll, scale, shift in refreshes:
            (scale_slot, shift_slot), offset = self._place([("scale", scale), ("shift", shift)], offset)
            messages.append(Refresh(roll, scale_slot, shift_slot))
        state_slots, end = self._place(state, offset)
        if end > self._free + PER_CALL_BYTES:
            raise HarnessError(f"a timed call needs {end - self._free} bytes of small tensors; raise PER_CALL_BYTES.")
        self._last_refreshes = refreshes
        request = Timed(tuple(messages), state_slots, start_offset)
        return self.worker.ask(request, self._limits.call_s, self._builder, self.candidate)

    def inputs_of_last_timed(self) -> list[torch.Tensor]:
        """The inputs of the last timed call, made again by the judge."""
        inputs = []
        for base, (roll, scale, shift) in zip(self._bases, self._last_refreshes, strict=True):
            buffer = torch.empty_like(base)
            refresh_into(buffer, base, roll, scale.to(base.device), shift.to(base.device))
            inputs.append(buffer)
        return inputs

    def returned_by_last_timed(self, done: Done) -> Returned:
        """What the last timed call left behind, read where the worker has no hand in it; valid until the next call."""
        memory = self.worker.memory if self._opened is None else self._opened.tensor
        return self._returned(done, memory, self._region)

    def close(self) -> None:
        """End the worker."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self.worker.close()

    def _place(self, tensors: Named, offset: int) -> tuple[tuple[Slot, ...], int]:
        slots = []
        for name, tensor in tensors:
            offset = aligned(offset)
            slot = Slot(name, name_of(tensor.dtype), tuple(tensor.shape), offset)
            try:
                view(self.worker.memory, slot).copy_(tensor)
            except ValueError as error:
                raise HarnessError(
                    f"the shared memory of {self.worker.memory.numel()} bytes is too small: {error}"
                ) from error
            slots.append(slot)
            offset += tensor.numel() * tensor.element_size()
        return tuple(slots), aligned(offset)

    def _poisoned(self, offset: int, expected_bytes: int) -> Region:
        """All bits set are NaN in every floating dtype, so an output that was not written is seen."""
        size = min(expected_bytes, self.worker.memory.numel() - offset)
        if size > 0:
            view(self.worker.memory, Slot("poison", "uint8", (size,), offset)).fill_(255)
        return Region(offset, self.worker.memory.numel() - offset)

    def _returned(self, done: Done, memory: torch.Tensor, region: Region) -> Returned:
        outputs = [(item.name, self._read(item, memory, region)) for item in done.outputs]
        outputs += [(f"state {item.name}", self._read(item, memory, region)) for item in done.state]
        return Returned(outputs, [self._read(item, memory, region) for item in done.inputs], done.computing)

    def _read(self, item: Written, memory: torch.Tensor, region: Region) -> torch.Tensor:
        """What the worker wrote, on the judge's device; the worker's word on where and what is checked."""
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
        return tensor.to(self.device)
