"""Imitates a precision class in float64: the operands of every product are rounded as the class rounds them."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tasks.spec import Precision

# Bits of the stored mantissa of an operand: IEEE 754 half, NVIDIA's TF32, bfloat16. IEEE single stores 23, but an
# honest fp32 kernel may add a thousand products into one accumulator, which costs about sqrt(1000 / 6) = 13 times a
# rounding, that is 4 bits.
MANTISSA_BITS = {Precision.FP32: 19, Precision.TF32: 10, Precision.FP16: 10, Precision.BF16: 7}

_PRODUCTS = frozenset(
    ("convolution", "_convolution", "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "dot", "conv_depthwise2d")
)


def round_mantissa(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Round float64 values to `bits` stored mantissa bits, ties away from zero as cvt.rna does; the range is kept.

    The magic is in the exponent's place: adding half of the last kept bit to the pattern rounds, masking cuts.
    """
    dropped = 52 - bits
    return _cut(values, dropped, first_added=1 << (dropped - 1))


def cut_mantissa(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Cut float64 values to `bits` stored mantissa bits, as tensor cores do with TF32 operands nobody rounded."""
    return _cut(values, 52 - bits, first_added=0)


def _cut(values: torch.Tensor, dropped: int, first_added: int) -> torch.Tensor:
    # In place: inputs may take gigabytes, of which float64 makes two for one already.
    pattern = values.clone(memory_format=torch.contiguous_format).view(torch.int64)
    pattern.add_(first_added).bitwise_and_(~((1 << dropped) - 1))
    # Infinity has no mantissa bits to lose, a NaN might lose its only ones.
    return pattern.view(torch.float64).masked_fill_(torch.isnan(values), float("nan"))


class RoundedProducts(TorchDispatchMode):
    """While active, convolutions and matrix products see their operands shortened to a precision class."""

    def __init__(self, precision: Precision, *, cutting: bool = False) -> None:
        """Operands are rounded to the nearest, or cut, that is rounded toward zero."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._bits = MANTISSA_BITS[precision]
        self._shorten = cut_mantissa if cutting else round_mantissa

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Shorten the float64 operands of products; biases are added exactly as everywhere."""
        del types
        name = func.name().partition("::")[2].split(".")[0]
        if name in _PRODUCTS:
            added = 1 if name.startswith(("addmm", "baddbmm", "addbmm")) else None
            bias = 2 if "convolution" in name else (3 if name.startswith("conv_depthwise") else None)
            args = tuple(
                self._shorten(value, self._bits)
                if isinstance(value, torch.Tensor)
                and value.dtype == torch.float64
                and index not in (bias,)
                and not (added is not None and index == 0)
                else value
                for index, value in enumerate(args)
            )
        return func(*args, **(kwargs or {}))
