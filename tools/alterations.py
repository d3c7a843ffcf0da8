"""What is done to a reference to make a mutant of it, or to compute it in another honest way.

The text of this file becomes part of candidates, which cannot import the project: it uses PyTorch and the standard
library alone. Its functions take the model, the reference's `forward` as a plain function, and the inputs of one call,
and answer in the place of `forward`.
"""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.overrides import TorchFunctionMode, resolve_name

Forward = Callable[..., Any]
Inputs = tuple[Tensor, ...]

# Calls whose dilation can be changed, with the names of their arguments in order.
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
DILATABLE = {f"conv{n}d": _CONVOLUTION for n in (1, 2, 3)} | {f"conv_transpose{n}d": _TRANSPOSED for n in (1, 2, 3)}


class Calls(TorchFunctionMode):
    """Numbers the calls of PyTorch's functions in their order, those inside others left out; `answer` carries each out.

    `answer` is given the number, the function, its arguments and its keyword arguments.
    """

    def __init__(self, answer: Callable[[int, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self._answer = answer
        self._numbers = itertools.count()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Number the call and pass it on."""
        del types
        return self._answer(next(self._numbers), func, args, kwargs or {})


def _last_vector(value: Tensor) -> Tensor:
    out = value.clone()
    out[..., value.shape[-1] // 4 * 4 :] = 0
    return out


def _zero_last(value: Tensor, dim: int) -> Tensor:
    out = value.clone()
    out.select(dim, -1).zero_()
    return out


def _later(value: Tensor) -> Tensor:
    out = torch.zeros_like(value)
    out[..., 1:] = value[..., :-1]
    return out


def _earlier(value: Tensor) -> Tensor:
    out = torch.zeros_like(value)
    out[..., :-1] = value[..., 1:]
    return out


OUTPUT_CHANGES: dict[str, tuple[str, int, Callable[[Tensor], Tensor]]] = {
    "zeros": ("zero everywhere", 0, torch.zeros_like),
    "shifted later": ("moved by one along the last dimension, zero at its start", 1, _later),
    "shifted earlier": ("moved by one against the last dimension, zero at its end", 1, _earlier),
    "no last element": ("zero in the last element of the last dimension", 1, lambda value: _zero_last(value, -1)),
    "no tail": ("zero after the last whole four elements of the last dimension", 1, _last_vector),
    "no last channel": ("zero in the last channel", 2, lambda value: _zero_last(value, 1)),
    "no last sample": ("zero in the last entry of the batch", 2, lambda value: _zero_last(value, 0)),
}
"""What each change makes of one output, the dimensions it needs at least, and the change."""


def output_changed(model: Any, forward: Forward, inputs: Inputs, *, output: int, change: str) -> Any:
    """The reference's answer with one of its outputs changed."""
    return _with_output(forward(model, *inputs), output, OUTPUT_CHANGES[change][2])


def input_copied(model: Any, forward: Forward, inputs: Inputs, *, output: int, source: int) -> Any:
    """The reference's answer with one output replaced by an input, cropped or repeated to the output's shape."""

    def fitted(like: Tensor) -> Tensor:
        value = inputs[source]
        for dim, size in enumerate(like.shape):
            value = value.index_select(dim, torch.arange(size, device=value.device) % value.shape[dim])
        return value.to(like.dtype)

    return _with_output(forward(model, *inputs), output, fitted)


def _with_output(value: Any, number: int, change: Callable[[Tensor], Tensor]) -> Any:
    numbers = itertools.count()

    def visit(item: Any) -> Any:
        if isinstance(item, Tensor):
            return change(item) if next(numbers) == number else item
        if isinstance(item, tuple | list):
            return [visit(entry) for entry in item]
        return {key: visit(entry) for key, entry in item.items()}

    return visit(value)


class _Bound(torch.nn.Module):
    """A model whose forward is the reference's, so that its parameters can be replaced for one call."""

    def __init__(self, model: torch.nn.Module, forward: Forward) -> None:
        super().__init__()
        self.model = model
        self.reference = forward

    def forward(self, *inputs: Tensor) -> Any:
        return self.reference(self.model, *inputs)


def values_changed(model: Any, forward: Forward, inputs: Inputs, *, values: dict[str, float]) -> Any:
    """The reference with parameters or buffers that hold one value everywhere."""
    own = model.state_dict(keep_vars=True)
    replaced = {f"model.{name}": torch.full_like(own[name], value) for name, value in values.items()}
    return functional_call(_Bound(model, forward), replaced, inputs)


def call_left_out(model: Any, forward: Forward, inputs: Inputs, *, call: int, name: str, keep: int) -> Any:
    """The reference with one call of a PyTorch function answered by one of its tensor arguments as it is."""
    return _with_call(model, forward, inputs, call, name, lambda _, args, kwargs: tensors_of(args, kwargs)[keep])


def _with_call(
    model: Any,
    forward: Forward,
    inputs: Inputs,
    call: int,
    name: str,
    instead: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any],
) -> Any:
    """The reference with something else done in one call; raises `LookupError` if that call is of another function."""
    met: list[str] = []

    def answer(number: int, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if number != call:
            return func(*args, **kwargs)
        met.append(name_of(func))
        return instead(func, args, kwargs) if met == [name] else func(*args, **kwargs)

    with Calls(answer):
        output = forward(model, *inputs)
    if met != [name]:
        raise LookupError(f"call {call} is of {met[0] if met else 'nothing'}, not of {name}")
    return output


def name_of(func: Callable[..., Any]) -> str:
    """The short name of one of PyTorch's functions, for example `relu`."""
    return (resolve_name(func) or func.__name__).removesuffix(".__get__").rpartition(".")[2]


def tensors_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that a call is given directly, in order."""
    return [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]


def module_left_out(model: Any, forward: Forward, inputs: Inputs, *, module: str) -> Any:
    """The reference with one of its modules answering its first input as it is."""
    hook = model.get_submodule(module).register_forward_hook(lambda _, given, __: given[0])
    try:
        return forward(model, *inputs)
    finally:
        hook.remove()


def dilation_changed(model: Any, forward: Forward, inputs: Inputs, *, call: int, name: str) -> Any:
    """The reference with another dilation in one convolution, padded so that its output keeps its shape."""

    def instead(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(DILATABLE[name], args, strict=False)) | kwargs
        return (_transposed_wider if DILATABLE[name] is _TRANSPOSED else _dilated_otherwise)(func, given)

    return _with_call(model, forward, inputs, call, name, instead)


def _per_dimension(value: Any, count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value) * (count if len(value) == 1 else 1)


def _dilated_otherwise(func: Callable[..., Any], given: dict[str, Any]) -> Tensor:
    """Dilations above 1 become 1, and 1 becomes 2."""
    kernel = given["weight"].shape[2:]
    before = _per_dimension(given.get("dilation", 1), len(kernel))
    after = [2 if dilation == 1 else 1 for dilation in before]
    padding = given.get("padding", 0)
    if padding == "same":
        padded = [dilation * (size - 1) for dilation, size in zip(before, kernel, strict=True)]
    else:
        padded = [2 * size for size in _per_dimension(0 if padding == "valid" else padding, len(kernel))]
    sides: list[int] = []
    # torch.nn.functional.pad wants the last dimension first.
    for size, old, new, total in reversed(list(zip(kernel, before, after, padded, strict=True))):
        wanted = total + (size - 1) * (new - old)
        sides += [wanted // 2, wanted - wanted // 2]
    padded_input = torch.nn.functional.pad(given["input"], sides)
    output: Tensor = func(**{**given, "input": padded_input, "padding": 0, "dilation": after})
    return output


def _transposed_wider(func: Callable[..., Any], given: dict[str, Any]) -> Tensor:
    """Every dilation grows by 2, the padding by half of what that adds to the output on both sides."""
    kernel = given["weight"].shape[2:]
    dilation = [old + 2 for old in _per_dimension(given.get("dilation", 1), len(kernel))]
    padding = _per_dimension(given.get("padding", 0), len(kernel))
    wider = [old + size - 1 for old, size in zip(padding, kernel, strict=True)]
    output: Tensor = func(**{**given, "padding": wider, "dilation": dilation})
    return output


def buffer_kept(model: Any, forward: Forward, inputs: Inputs, *, buffer: str) -> Any:
    """The reference, with one buffer that it updates put back to what it was."""
    own = model.state_dict(keep_vars=True)[buffer]
    before = own.clone()
    answer = forward(model, *inputs)
    own.copy_(before)
    return answer


def computed_in(
    model: Any,
    forward: Forward,
    inputs: Inputs,
    *,
    dtype: str,
    outputs: tuple[str, ...],
    within: contextlib.AbstractContextManager[Any] | None = None,
) -> Any:
    """The reference computed in another dtype, without TF32; outputs and buffers are cast back."""
    wide = copy.deepcopy(model).to(getattr(torch, dtype))
    given = [value.to(getattr(torch, dtype)) if value.is_floating_point() else value for value in inputs]
    with _exactly(getattr(torch, dtype)), within or contextlib.nullcontext():
        answer = forward(wide, *given)
    updated = dict(wide.named_buffers())
    for name, buffer in model.named_buffers():
        buffer.copy_(updated[name])
    for number, name in enumerate(outputs):
        answer = _with_output(answer, number, lambda value, name=name: value.to(getattr(torch, name)))  # type: ignore[misc]
    return answer


@contextlib.contextmanager
def _exactly(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype(), torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.set_default_dtype(dtype)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_default_dtype(before[0])
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before[1:]
