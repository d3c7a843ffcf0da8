"""One candidate in one worker: carries out the judge's requests in order."""

import contextlib
import math
import sys
import time
from dataclasses import replace
from types import CodeType, ModuleType
from typing import Any

import torch

from tools.worker import tensors
from tools.worker.clock import DeviceClock, Gate
from tools.worker.device_memory import allocate_shared
from tools.worker.kernel_trace import KernelTrace, displace_cache
from tools.worker.launch_errors import LaunchErrors
from tools.worker.load_inline import CollectedError, InlineLoader
from tools.worker.messages import (
    GATE_BYTES,
    Call,
    Construct,
    Fill,
    Load,
    Probe,
    Recall,
    Report,
    Request,
    Share,
    Slot,
    Stage,
    Timed,
    Trace,
    Warm,
    Wire,
)
from tools.worker.plain_values import decode
from tools.worker.shared_memory import apart, dtype_of
from tools.worker.tensors import ContractError
from tools.worker.watch import OperatorWatch, TimedCallsWatch

CANDIDATE_FILE = "candidate.py"


def _compiled(text: str) -> CodeType:
    """The candidate's code; whatever its text makes of the compiler, it is a fault of the text: a SyntaxError."""
    try:
        return compile(text, CANDIDATE_FILE, "exec", dont_inherit=True)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(f"the text is no Python: {str(error) or 'it is nested too deeply'}") from error


class Session:
    """The state of a worker from `Load` to its end."""

    def __init__(self, memory: torch.Tensor, loader: InlineLoader, wire: Wire) -> None:
        self._memory = memory[:-GATE_BYTES]
        """Of all but timed calls."""
        self._gate_page = memory[-GATE_BYTES:]
        self._gate: Gate | None = None
        self._loader = loader
        self._wire = wire
        self._device = "cpu"
        self._clock = DeviceClock("cpu")
        self._launch_errors = LaunchErrors("cpu")
        self._module = ModuleType("candidate")
        self._model: torch.nn.Module = torch.nn.Module()
        self._models: list[torch.nn.Module] = []
        self._timed_memory = self._memory
        self._storages: dict[tuple[int, int], torch.Tensor] = {}
        """By offset and size, what inputs of timed calls have lain in; there are some sixty places."""
        self._places: dict[Slot, torch.Tensor] = {}
        """Where outputs of timed calls were written."""
        self._in_place = False
        self._copies: list[torch.Tensor] = []
        """Of outputs that could not be read where they lie."""
        self._watch: TimedCallsWatch | None = None
        self._outputs: list[tuple[str, torch.Tensor]] = []
        self._held: list[list[tuple[str, torch.Tensor]]] = []

    def handle(self, request: Request) -> dict[str, Any]:
        """Carry out one request; exceptions are the candidate's unless they are a `ContractError`."""
        with torch.no_grad():
            match request:
                case Warm():
                    return self._warm(request.device)
                case Load():
                    return self._load(request)
                case Share():
                    self._memory, handle = allocate_shared(request.shared_bytes)
                    return {"handle": handle}
                case Construct():
                    return self._construct(request)
                case Recall():
                    self._model = self._models[request.number]
                    return {}
                case Probe():
                    return self._probe(request)
                case Fill():
                    return self._fill(request)
                case Call():
                    return self._call(request)
                case Trace():
                    return self._trace(request)
                case Stage():
                    return self._stage(request)
                case Timed():
                    return self._timed(request)
                case Report():
                    return self._report()

    def _warm(self, device: str) -> dict[str, Any]:
        if device == "cuda":
            torch.cuda.init()
            # The context comes with the first thing that needs it.
            torch.cuda.synchronize()
            self._device = "cuda"
        self._clock = DeviceClock(self._device)
        self._launch_errors = LaunchErrors(self._device)
        return {}

    def _load(self, request: Load) -> dict[str, Any]:
        if self._device != request.device:
            self._warm(request.device)
        torch.backends.cuda.matmul.allow_tf32 = request.allow_tf32
        torch.backends.cudnn.allow_tf32 = request.allow_tf32
        self._module.__file__ = CANDIDATE_FILE
        sys.modules["candidate"] = self._module
        exec(_compiled(request.text), self._module.__dict__)
        model = getattr(self._module, "ModelNew", None)
        if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
            raise ContractError("the module defines no class ModelNew that derives from torch.nn.Module")
        return {"requested": self._loader.requested}

    def _construct(self, request: Construct) -> dict[str, Any]:
        self._model = self._module.ModelNew(*decode(request.init_inputs))
        if not isinstance(self._model, torch.nn.Module):
            raise ContractError("ModelNew(...) did not give a torch.nn.Module")
        self._model.train(request.training)
        self._model.to(self._device)
        self._models.append(self._model)
        self._clock.synchronize()
        return {"requested": self._loader.requested}

    def _probe(self, request: Probe) -> dict[str, Any]:
        self._loader.collecting = True
        try:
            self._model(*tensors.read(self._memory, request.inputs, "cpu"))
        except CollectedError:
            return {"requested": self._loader.requested}
        except Exception as error:
            return {"requested": self._loader.requested, "ended_by": f"{type(error).__name__}: {error}"}
        return {"requested": self._loader.requested}

    def _fill(self, request: Fill) -> dict[str, Any]:
        values = tensors.read(self._memory, request.state, self._device)
        matched = tensors.fill(self._model, dict(zip((s.name for s in request.state), values, strict=True)))
        started = time.perf_counter_ns()
        prepare = getattr(self._model, "prepare", None)
        if callable(prepare):
            prepare()
        self._clock.synchronize()
        return {"matched": matched, "prepare_ns": time.perf_counter_ns() - started if callable(prepare) else 0}

    def _call(self, request: Call) -> dict[str, Any]:
        inputs = tensors.read(self._memory, request.inputs, self._device)
        tensors.set_buffers(self._model, self._memory, request.state)
        watch = OperatorWatch(self._device)
        with watch if request.watch else contextlib.nullcontext():
            raw = self._model(*inputs)
            launch_error = self._launch_errors.take()
            self._clock.synchronize()
        written = self._written(self._memory, tensors.flatten(raw), request, inputs)
        self._clock.synchronize()
        return {
            "computing": watch.computing,
            "launched": watch.launched,
            "launch_error": launch_error,
            **written,
        }

    def _trace(self, request: Trace) -> dict[str, Any]:
        inputs = tensors.read(self._memory, request.inputs, self._device)
        tensors.set_buffers(self._model, self._memory, request.state)
        displace_cache(request.flush_bytes)
        self._clock.synchronize()
        trace = KernelTrace()
        trace.start()
        self._model(*inputs)
        launch_error = self._launch_errors.take()
        self._clock.synchronize()
        return {"traced": trace.stop(), "launch_error": launch_error}

    def _stage(self, request: Stage) -> dict[str, Any]:
        if request.watch:
            self._watch = TimedCallsWatch()
        self._in_place = request.in_place
        self._storages.clear()
        self._places.clear()
        if self._device != "cuda":
            return {}
        self._timed_memory, handle = allocate_shared(request.shared_bytes)
        self._gate = Gate(self._gate_page)
        self._clock.synchronize()
        return {"handle": handle}

    def _timed(self, request: Timed) -> dict[str, Any]:
        inputs = [self._apart(slot) for slot in request.inputs]
        tensors.set_buffers(self._model, self._memory, request.state)
        # Those that are let go of make room for this call's; the last call's stay, so that its memory is checked.
        self._held = [*self._held, self._outputs][-1 - request.held :]
        self._poison()
        if self._watch is not None:
            self._watch.mark()
        self._clock.synchronize()
        gate = self._gate if request.gate else None
        if gate is not None:
            gate.wait(request.gate)
        else:
            self._wire.send({"ready": True})
            self._wire.receive()
        self._clock.start()
        raw = self._model(*inputs)
        self._clock.end()
        if gate is None:
            self._clock.synchronize()
        self._outputs = tensors.flatten(raw)
        tensors.require_own_memory(self._outputs, [named for outputs in self._held for named in outputs])
        if self._in_place:
            return {"ns": self._clock.read(), **self._held_now(request)}
        # Behind a gate the copies are queued as well, so that nothing is left to do once the GPU is done. The judge
        # reads the inputs itself, where it wrote them.
        written = self._written(self._timed_memory, self._outputs, request, [], self._places)
        if gate is not None:
            self._wire.send({"ready": True})
        return {"ns": self._clock.read(), **written}

    def _apart(self, slot: Slot) -> torch.Tensor:
        """A new tensor at a slot; wrapping memory takes longer than a launch, so its storage is kept for the next."""
        size = math.prod(slot.shape) * dtype_of(slot.dtype).itemsize
        if (slot.offset, size) not in self._storages:
            self._storages[slot.offset, size] = apart(self._timed_memory, replace(slot, dtype="uint8", shape=(size,)))
        return self._storages[slot.offset, size].view(dtype_of(slot.dtype)).view(slot.shape)

    def _report(self) -> dict[str, Any]:
        return {} if self._watch is None else self._watch.report()

    def _written(
        self,
        memory: torch.Tensor,
        outputs: list[tuple[str, torch.Tensor]],
        request: Call | Timed,
        inputs: list[torch.Tensor],
        places: dict[Slot, torch.Tensor] | None = None,
    ) -> dict[str, Any]:
        """Write what a call left behind, and describe where it lies."""
        state = tensors.named_buffers(self._model, tuple(slot.name for slot in request.state))
        after = [(f"input {index}", tensor) for index, tensor in enumerate(inputs)]
        written = tensors.write(memory, request.region, [*outputs, *state, *after], places)
        count = len(outputs)
        return {
            "outputs": written[:count],
            "state": written[count : count + len(state)],
            "inputs": written[count + len(state) :],
        }

    def _held_now(self, request: Timed) -> dict[str, Any]:
        """Where the outputs of a call and the buffers that it updated lie."""
        state = tensors.named_buffers(self._model, tuple(slot.name for slot in request.state))
        outputs, copies = tensors.located(self._outputs)
        buffers, more = tensors.located(state)
        self._copies = [*copies, *more]
        return {"held_outputs": outputs, "held_state": buffers}

    def _poison(self) -> None:
        """Leave NaN in the memory that the next call's outputs are likely to be allocated from."""
        for _, tensor in self._outputs:
            if tensor.dtype.is_floating_point:
                torch.full(tensor.shape, float("nan"), dtype=tensor.dtype, device=self._device)
