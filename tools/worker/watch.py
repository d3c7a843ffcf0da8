"""Records which PyTorch operators run during a call, from Python or from C++, on any thread."""

from collections import Counter
from types import TracebackType
from typing import Any, Self

from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig
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
    zeros_like _local_scalar_dense select_scatter slice_scatter
    """.split()  # noqa: SIM905  a list of 100 quoted names is harder to read
)
_OPERATORS_OF_LIBRARIES = ("aten", "prim", "prims", "mkldnn", "mkldnn_prepacked", "inductor", "cudnn", "quantized")


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


class OperatorWatch:
    """While active, keeps the names of operators that compute.

    Two witnesses, so that a candidate that evades one is seen by the other: a dispatch mode, and PyTorch's profiler,
    which records every thread and what C++ code hides from dispatch modes. NOT seen: libraries that are not PyTorch's
    and are called directly, and a candidate that rewrites this module.
    """

    def __init__(self) -> None:
        self._dispatched = _DispatchWitness()
        settings = _ExperimentalConfig(profile_all_threads=True)
        self._config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, settings)
        self.computing: dict[str, int] = {}
        """Operators that computed, by name, with how often; filled when the watch ends."""

    def __enter__(self) -> Self:
        activities = {ProfilerActivity.CPU}
        _prepare_profiler(self._config, activities)
        _enable_profiler(self._config, activities)
        self._dispatched.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dispatched.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        recorded = Counter(event.name() for event in _disable_profiler().events())
        both = self._dispatched.seen | recorded
        self.computing = {name: count for name, count in both.items() if _computes(name)}
