"""Records which PyTorch operators run during a call, from Python or from C++."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

# Allocation, views and plain copies: what `forward` may do through PyTorch.
PLAIN_OPERATORS = frozenset(
    """
    alias arange _reshape_alias as_strided as_strided_ chunk clone contiguous copy_ _to_copy to detach detach_ diagonal
    empty empty_like empty_strided empty_permuted expand fill_ flatten full full_like is_pinned item lift_fresh lift
    movedim narrow new_empty new_empty_strided new_full new_ones new_zeros ones ones_like permute pin_memory _pin_memory
    record_stream reshape resize_ resize_as_ resolve_conj resolve_neg select set_ size slice split split_with_sizes
    squeeze squeeze_ stride swapaxes t t_ transpose transpose_ unbind unflatten unsafe_chunk unsafe_split unsqueeze
    unsqueeze_ view view_as_real _unsafe_view zero_ zeros zeros_like _local_scalar_dense select_scatter slice_scatter
    """.split()  # noqa: SIM905  a list of 90 quoted names is harder to read
)


class OperatorWatch(TorchDispatchMode):
    """While active, keeps the names of operators that compute."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.computing: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator and run it."""
        del types
        namespace, _, rest = func.name().partition("::")
        name = rest.split(".")[0]
        plain = namespace in ("aten", "prim", "profiler") and name in PLAIN_OPERATORS
        # An operator that the candidate registered itself is its own code; what that calls is seen on its own.
        ours = namespace in ("aten", "prim", "prims", "mkldnn", "mkldnn_prepacked", "inductor", "cudnn", "quantized")
        if ours and not plain:
            key = f"{namespace}::{name}"
            self.computing[key] = self.computing.get(key, 0) + 1
        return func(*args, **(kwargs or {}))
