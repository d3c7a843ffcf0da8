"""The shipped tasks with few channels, in any precision class, and ways to compute them, for tests of the gate."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tasks.loader import Task
from tasks.spec import Precision, TargetPrecision
from tools.rounding import cut_mantissa, round_mantissa

DTYPES = {Precision.FP16: "float16", Precision.BF16: "bfloat16"}
CHANNELS = 16


def narrowed(task: Task, precision: Precision) -> Task:
    """A shipped task with 16 input channels and a dilation of 8 at most, in a class of our choice."""
    source = task.source
    numbers = {"in_channels": 16, "channels": 16, "out_channels": 32, "num_groups": 4}
    for name, value in numbers.items():
        source = re.sub(rf"^{name} = \d+", f"{name} = {value}", source, flags=re.M)
    source = re.sub(r"^dilation = 128", "dilation = 8", source, flags=re.M)
    spec = task.facts.inputs[0]
    spec = spec.model_copy(update={"dims": ("N", CHANNELS, "L"), "dtype": DTYPES.get(precision, "float32")})
    facts = task.facts.model_copy(
        update={
            "precision": TargetPrecision(cuda=precision, cpu=precision),
            "inputs": (spec,),
            "receptive_field": min(task.facts.receptive_field, 17),
        }
    )
    return replace(task, source=source, facts=facts)


class Computing(TorchFunctionMode):
    """While active, convolutions and norms are computed as given here."""

    def __init__(self, **functions: Callable[..., Tensor]) -> None:
        super().__init__()
        self._functions = functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        return self._functions.get(getattr(func, "__name__", ""), func)(*args, **(kwargs or {}))


def padded(x: Tensor, padding: Any, dilation: int, width: int) -> Tensor:
    if padding == "same":
        total = dilation * (width - 1)
        return functional.pad(x, (total // 2, total - total // 2))
    return functional.pad(x, (padding[0], padding[0]))


def one_accumulator(x: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    """Every output is one fp32 sum of products, added in order."""
    assert stride == (1,)
    step, width = dilation[0], w.shape[2]
    x = padded(x, padding, step, width)
    length = x.shape[2] - step * (width - 1)
    out = torch.zeros(x.shape[0], w.shape[0], length)
    for channel in range(w.shape[1]):
        given = x if groups > 1 else x[:, channel : channel + 1]
        for tap in range(width):
            out = out + w[None, :, channel, tap, None] * given[..., tap * step : tap * step + length]
    return out if bias is None else out + bias[None, :, None]


# The transformations of F(4, 3) for the points 0, 1, -1, 2, -2: Lavin and Gray, arXiv:1509.09308, in one dimension.
INPUT = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]]
INPUT += [[0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
TAPS = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6]]
TAPS += [[1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]
OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def winograd(x: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    """Winograd's F(4, 3) in fp32 where it applies."""
    if w.shape[2] != 3 or groups != 1 or dilation != (1,):
        return one_accumulator(x, w, bias, stride, padding, dilation, groups)
    x = padded(x, padding, 1, 3)
    length = x.shape[2] - 2
    tiles = functional.pad(x, (0, -length % 4)).unfold(2, 6, 4) @ torch.tensor(INPUT, dtype=torch.float32).T
    products = torch.einsum("ocs,ncts->nots", w @ torch.tensor(TAPS).T, tiles)
    out = (products @ torch.tensor(OUTPUT, dtype=torch.float32).T).flatten(2)[..., :length]
    return out if bias is None else out + bias[None, :, None]


def _in_order(rows: Tensor) -> Tensor:
    """Sums of rows by one fp32 accumulator each, kept as columns."""
    return rows.cumsum(1)[:, -1:]


def norm_in_two_passes(rows: Tensor, eps: float) -> Tensor:
    """Rows normalised with a mean and a variance that one fp32 accumulator each added up."""
    centred = rows - _in_order(rows) / rows.shape[1]
    return centred * torch.rsqrt(_in_order(centred.square()) / rows.shape[1] + eps)


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """GroupNorm in two passes."""
    rows = norm_in_two_passes(x.reshape(x.shape[0] * groups, -1), eps)
    return rows.reshape(x.shape) * weight[None, :, None] + bias[None, :, None]


def batch_norm(
    x: Tensor, mean: Any, var: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Tensor:
    """BatchNorm in two passes; in eval mode, folded to a factor and an offset. Leaves the running statistics alone."""
    del momentum
    if training:
        rows = norm_in_two_passes(x.transpose(0, 1).flatten(1), eps)
        x = rows.reshape(x.shape[1], x.shape[0], -1).transpose(0, 1)
        out: Tensor = x * weight[None, :, None] + bias[None, :, None]
        return out
    factor = weight * torch.rsqrt(var + eps)
    folded: Tensor = x * factor[None, :, None] + (bias - mean * factor)[None, :, None]
    return folded


_CONVOLUTION: Any = functional.conv1d


def shortened(shorten: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """PyTorch's convolution on operands that are shortened to TF32 before."""

    def convolution(x: Tensor, w: Tensor, *others: Any) -> Tensor:
        given = [shorten(value.double(), 10).float() for value in (x, w)]
        out: Tensor = _CONVOLUTION(*given, *others)
        return out

    return convolution


NORMS: dict[str, Callable[..., Tensor]] = {"group_norm": group_norm, "batch_norm": batch_norm}
HONEST = {
    "PyTorch": Computing(),
    "one accumulator": Computing(conv1d=one_accumulator, **NORMS),
    "Winograd": Computing(conv1d=winograd, **NORMS),
}
HONEST_TF32 = {
    "TF32 rounded": Computing(conv1d=shortened(round_mantissa), **NORMS),
    "TF32 cut": Computing(conv1d=shortened(cut_mantissa), **NORMS),
}
