"""One candidate in one worker: carries out the judge's requests in order."""

import sys
import time
from types import CodeType, ModuleType
from typing import Any

import torch

from tools.worker import tensors
from tools.worker.clock import CacheFlush, DeviceClock
from tools.worker.device_memory import allocate_shared
from tools.worker.load_inline import CollectedError, InlineLoader
from tools.worker.messages import Call, Construct, Fill, Load, Probe, Region, Request, Slot, Stage, Timed
from tools.worker.plain_values import decode
from tools.worker.refresh import refresh_into
from tools.worker.shared_memory import view
from tools.worker.tensors import ContractError
from tools.worker.watch import OperatorWatch

CANDIDATE_FILE = "candidate.py"
_ADDRESS_SLACK = 4096
"""Bytes by which a timed input may move within its buffer."""
_BUFFERS = 2
"""Timed inputs alternate between this many buffers, so that no two calls in a row share an address."""


def _compiled(text: str) -> CodeType:
    """The candidate's code; whatever its text makes of the compiler, it is a fault of the text: a SyntaxError."""
    try:
        return compile(text, CANDIDATE_FILE, "exec", dont_inherit=True)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(f"the text is no Python: {str(error) or 'it is nested too deeply'}") from error


class Session:
    """The state of a worker from `Load` to its end."""

    def __init__(self, memory: torch.Tensor, loader: InlineLoader) -> None:
        self._memory = memory
        self._loader = loader
        self._device = "cpu"
        self._clock = DeviceClock("cpu")
        self._module = ModuleType("candidate")
        self._model: torch.nn.Module = torch.nn.Module()
        self._bases: list[torch.Tensor] = []
        self._buffers: list[list[torch.Tensor]] = []
        self._calls = 0
        self._region = Region(0, 0)
        self._export = memory
        self._outputs: list[tuple[str, torch.Tensor]] = []
        self._flush = CacheFlush("cpu", 4)

    def handle(self, request: Request) -> dict[str, Any]:
        """Carry out one request; exceptions are the candidate's unless they are a `ContractError`."""
        with torch.no_grad():
            match request:
                case Load():
                    return self._load(request)
                case Construct():
                    return self._construct(request)
                case Probe():
                    return self._probe(request)
                case Fill():
                    return self._fill(request)
                case Call():
                    return self._call(request)
                case Stage():
                    return self._stage(request)
                case Timed():
                    return self._timed(request)

    def _load(self, request: Load) -> dict[str, Any]:
        if request.device == "cuda":
            torch.cuda.init()
            self._device = "cuda"
        self._clock = DeviceClock(self._device)
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
        with OperatorWatch() as watch:
            raw = self._model(*inputs)
        self._clock.synchronize()
        names = tuple(slot.name for slot in request.state)
        written = self._written(self._memory, request.region, tensors.flatten(raw), names, inputs)
        return {"computing": watch.computing, **written}

    def _stage(self, request: Stage) -> dict[str, Any]:
        self._bases = tensors.read(self._memory, request.inputs, self._device)
        self._buffers = [[self._buffer_for(base) for base in self._bases] for _ in range(_BUFFERS)]
        self._flush = CacheFlush(self._device, request.flush_bytes)
        self._region = request.region
        handle = ""
        if self._device == "cuda":
            self._export, handle = allocate_shared(request.region.capacity)
            self._region = Region(0, request.region.capacity)
        self._clock.synchronize()
        return {"handle": handle}

    def _buffer_for(self, base: torch.Tensor) -> torch.Tensor:
        return torch.empty(base.numel() + _ADDRESS_SLACK // base.element_size(), dtype=base.dtype, device=self._device)

    def _timed(self, request: Timed) -> dict[str, Any]:
        self._calls += 1
        inputs: list[torch.Tensor] = []
        for base, buffer, refresh in zip(
            self._bases, self._buffers[self._calls % _BUFFERS], request.refreshes, strict=True
        ):
            start = request.start_offset % _ADDRESS_SLACK // base.element_size()
            fresh = buffer[start : start + base.numel()].view(base.shape)
            scale, shift = (self._small(slot) for slot in (refresh.scale, refresh.shift))
            refresh_into(fresh, base, refresh.roll, scale, shift)
            inputs.append(fresh)
        tensors.set_buffers(self._model, self._memory, request.state)
        self._poison()
        earlier = self._outputs
        self._flush.run()
        self._clock.synchronize()
        self._clock.start()
        raw = self._model(*inputs)
        nanoseconds = self._clock.stop()
        self._outputs = tensors.flatten(raw)
        tensors.require_own_memory(self._outputs, earlier)
        names = tuple(slot.name for slot in request.state)
        return {"ns": nanoseconds, **self._written(self._export, self._region, self._outputs, names, inputs)}

    def _written(
        self,
        memory: torch.Tensor,
        region: Region,
        outputs: list[tuple[str, torch.Tensor]],
        buffers: tuple[str, ...],
        inputs: list[torch.Tensor],
    ) -> dict[str, Any]:
        """Write what a call left behind, and describe where it lies."""
        state = tensors.named_buffers(self._model, buffers)
        after = [(f"input {index}", tensor) for index, tensor in enumerate(inputs)]
        written = tensors.write(memory, region, [*outputs, *state, *after])
        self._clock.synchronize()
        count = len(outputs)
        return {
            "outputs": written[:count],
            "state": written[count : count + len(state)],
            "inputs": written[count + len(state) :],
        }

    def _small(self, slot: Slot) -> torch.Tensor:
        return view(self._memory, slot).to(self._device)

    def _poison(self) -> None:
        """Leave NaN in the memory that the next call's outputs are likely to be allocated from."""
        for _, tensor in self._outputs:
            if tensor.dtype.is_floating_point:
                torch.full(tensor.shape, float("nan"), dtype=tensor.dtype, device=self._device)
