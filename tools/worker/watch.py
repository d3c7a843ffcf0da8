"""Records which PyTorch operators and which GPU kernels run during calls, from Python or from C++, on any thread."""

from collections import Counter
from types import TracebackType
from typing import Any, Self

import torch
from torch._C._autograd import DeviceType, _disable_profiler, _enable_profiler, _prepare_profiler
from torch._C._profiler import (
    ProfilerActivity,
    ProfilerConfig,
    ProfilerState,
    _ExperimentalConfig,
    _RecordFunctionFast,
)
from torch.utils._python_dispatch import TorchDispatchMode

# Allocation, views and plain copies: what `forward` may do through PyTorch.
PLAIN_OPERATORS = frozenset(
    """
    alias arange _reshape_alias as_strided as_strided_ cat chunk clone constant_pad_nd contiguous copy_ _to_copy to
    detach detach_ diagonal empty empty_like empty_strided empty_permuted expand expand_as fill_ flatten full full_like
    imag is_pinned item lift_fresh lift movedim narrow new_empty new_empty_strided new_full new_ones new_zeros ones
    ones_like pad permute pin_memory _pin_memory real record_stream reshape resize_ resize_as_ resolve_conj resolve_neg
    select set_ size slice split split_with_sizes squeeze squeeze_ stack stride swapaxes t t_ transpose transpose_
    unbind unflatten unsafe_chunk unsafe_split unsqueeze unsqueeze_ view view_as view_as_real _unsafe_view zero_ zeros
    zeros_like _local_scalar_dense select_scatter slice_scatter unfold
    """.split()  # noqa: SIM905  a list of 100 quoted names is harder to read
)
_MARK = "kernelwright: a timed call"
_OWN_BOOKKEEPING = ("profiler", "_test")
# Those that are there before any candidate is loaded: mkl, onednn and some twenty more. `prim` is the JIT's.
_OPERATORS_OF_LIBRARIES = frozenset(
    {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()} | {"prim", "cudnn"}
) - set(_OWN_BOOKKEEPING)


def _computes(operator: str) -> bool:
    """Whether an operator such as `aten::conv1d` computes.

    One that the candidate registered itself is its own code; what that calls is seen on its own.
    """
    namespace, _, name = operator.partition("::")
    return namespace in _OPERATORS_OF_LIBRARIES and name not in PLAIN_OPERATORS


class _DispatchWitness(TorchDispatchMode):
    """Sees what this thread dispatches, but not what runs with dispatch modes left or below them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator and run it."""
        del types
        self.seen[func.name().split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


class Recording:
    """PyTorch's profiler, from `start` to `stop`: it sees every thread, and what C++ code hides from dispatch modes."""

    def __init__(self, *, kernels: bool) -> None:
        settings = _ExperimentalConfig(profile_all_threads=True)
        self._config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, settings)
        # Kernels are seen through CUPTI, which costs time on the GPU: not while anything is timed.
        self._activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA} if kernels else {ProfilerActivity.CPU}
        self.operators: Counter[str] = Counter()
        self.launched: dict[str, tuple[int, int]] = {}
        """GPU kernels by name: how often, and nanoseconds in all."""

    def start(self) -> None:
        """Record from here on."""
        _prepare_profiler(self._config, self._activities)
        _enable_profiler(self._config, self._activities)

    def stop(self) -> None:
        """Record no more, and read what was."""
        events = _disable_profiler().events()
        if ProfilerActivity.CUDA not in self._activities:
            self.operators.update(event.name() for event in events)
            return
        for event in events:
            name = event.name()
            if event.device_type() == DeviceType.CPU:
                self.operators[name] += 1
            elif not (event.is_user_annotation() or name.startswith(("Memcpy", "Memset"))):
                count, total_ns = self.launched.get(name, (0, 0))
                self.launched[name] = (count + 1, total_ns + event.duration_ns())


class TimedCallsWatch:
    """Records operators through all timed calls, a microsecond each; what the harness itself runs is plain copies."""

    def __init__(self) -> None:
        self._recording = Recording(kernels=False)
        self._recording.start()

    def mark(self) -> None:
        """Leave a mark in the recording, so that one that was ended for a while is noticed."""
        with _RecordFunctionFast(_MARK):
            pass

    def report(self) -> dict[str, Any]:
        """End the recording: operators that computed, and how many marks there are."""
        self._recording.stop()
        operators = self._recording.operators
        return {"computing": _computing(operators), "marks": operators[_MARK]}


class OperatorWatch:
    """While active, keeps the names of operators that compute, and on a GPU the kernels that were launched.

    Two witnesses, so that a candidate that evades one is seen by the other: a dispatch mode, and PyTorch's profiler.
    NOT seen: libraries on the host that are not PyTorch's, and a candidate that rewrites this module: on the host
    `tools.call_looks` sees both in timed calls, from outside.
    """

    def __init__(self, device: str) -> None:
        self._dispatched = _DispatchWitness()
        self._recording = Recording(kernels=device == "cuda")
        self.computing: dict[str, int] = {}
        """Operators that computed, by name, with how often; filled when the watch ends."""
        self.launched: dict[str, tuple[int, int]] = {}
        """As of `Recording`; filled when the watch ends."""

    def __enter__(self) -> Self:
        self._recording.start()
        self._dispatched.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dispatched.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._recording.stop()
        self.computing = _computing(self._dispatched.seen | self._recording.operators)
        self.launched = self._recording.launched


def _computing(operators: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in operators.items() if _computes(name)}
