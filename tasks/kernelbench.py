"""Derives the facts of a KernelBench problem file that states none, by executing it and probing its model."""

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tasks.errors import TaskError
from tasks.reference import Reference, load_reference
from tasks.spec import Axis, Domain, InputSpec, Precision, Target, TargetPrecision, TaskFacts

_HOST_BYTES = 16 * 2**20
"""Inputs and outputs of the host's benchmark shape stay below this: one call then takes milliseconds, not seconds."""

_Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Problem:
    """The reference with one set of its inputs; `meta` is the model without storage, for probing shapes at no cost."""

    path: Path
    reference: Reference
    inputs: tuple[Tensor, ...]
    meta: nn.Module

    @property
    def shapes(self) -> _Shapes:
        return tuple(tuple(tensor.shape) for tensor in self.inputs)

    def output_bytes(self, shapes: _Shapes) -> int | None:
        """Bytes of the outputs for inputs of these shapes; None where the model refuses them."""
        inputs = [torch.empty(s, dtype=t.dtype, device="meta") for s, t in zip(shapes, self.inputs, strict=True)]
        try:
            with torch.no_grad():
                outputs = self.meta(*inputs)
        # Whatever a model raises for a shape, the answer is the same: it does not accept that shape.
        except Exception:
            return None
        tensors = _tensors(outputs)
        if any(tensor.numel() == 0 for tensor in tensors):
            return None
        return sum(tensor.nbytes for tensor in tensors)


def derive_facts(source: str, path: Path) -> TaskFacts:
    """The facts of a KernelBench problem file without `TASK`.

    Free axes are at most two: dimension 0 that all inputs share (`N`), and the last dimension that they share (`L`),
    each only where the model accepts other sizes. Raises `TaskError` where the file does not run, an input is not a
    tensor, or the model does not run on its own inputs.
    """
    problem = _open(source, path)
    axes = _free_axes(problem)
    host = _host_sizes(problem, axes)
    axes = tuple(axis.model_copy(update={"cpu": host[axis.name]}) for axis in axes)
    state = _changed_state(problem, axes)
    return TaskFacts(
        name=_name(path),
        title=_title(source, path),
        used_in=f"The KernelBench problem file {path.name}; its facts were derived, not stated.",
        precision=_precision(problem),
        axes=axes,
        inputs=tuple(_input_spec(problem, position, axes) for position in range(len(problem.inputs))),
        state=state,
        notes=_notes(axes, state),
    )


def _open(source: str, path: Path) -> _Problem:
    reference = load_reference(source, path)
    try:
        given = list(reference.get_inputs())
        model = reference.model_class(*reference.init_inputs)
        meta = copy.deepcopy(model).to("meta")
    except Exception as error:
        raise TaskError(
            f"{path}: constructing Model or calling get_inputs() failed: {type(error).__name__}: {error}; "
            "correct the problem file"
        ) from error
    for position, value in enumerate(given):
        if not isinstance(value, Tensor):
            raise TaskError(
                f"{path}: get_inputs()[{position}] is a {type(value).__name__}; inputs must be tensors, because every "
                "call gets fresh ones; pass the value to Model through get_init_inputs() instead"
            )
        if value.is_complex() or value.dtype is torch.bool:
            raise TaskError(
                f"{path}: get_inputs()[{position}] is of {value.dtype}; only floating-point and integer inputs can be "
                "drawn anew for every call; change the problem's inputs"
            )
    if not given:
        raise TaskError(f"{path}: get_inputs() is empty; a task needs at least one input tensor")
    problem = _Problem(path, reference, tuple(given), meta)
    if problem.output_bytes(problem.shapes) is None:
        raise TaskError(
            f"{path}: Model does not run on the shapes of its own get_inputs(), tried without data on the meta device; "
            "correct the file, or state the facts in it as TASK = TaskFacts(...)"
        )
    return problem


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for entry in value for tensor in _tensors(entry)]
    if isinstance(value, dict):
        return _tensors(list(value.values()))
    return []


def _free_axes(problem: _Problem) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    batch = _shared_size(problem, 0)
    if batch is not None:
        axes += _probe(problem, "N", batch)
    length = _shared_size(problem, -1)
    if length is not None and all(len(shape) > 1 for shape in problem.shapes):
        axes += _probe(problem, "L", length)
    return _together(problem, tuple(axes))


def _together(problem: _Problem, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes with the last one's minimum raised until all minima are accepted at once.

    BatchNorm in training mode, for example, accepts N = 1 and L = 1 but not both.
    """
    if not axes:
        return axes
    *others, last = axes
    minima = {axis.name: axis.minimum for axis in others}
    steps = _least(
        last.cuda // last.multiple_of,
        lambda count: _accepted(problem, {**minima, last.name: count * last.multiple_of}),
    )
    return (*others, last.model_copy(update={"minimum": steps * last.multiple_of}))


def _shared_size(problem: _Problem, dim: int) -> int | None:
    """The size that every input has in a dimension, if it is one."""
    sizes = {shape[dim] if shape else 0 for shape in problem.shapes}
    size = sizes.pop()
    return size if not sizes and size > 0 else None


def _probe(problem: _Problem, name: str, size: int) -> tuple[Axis, ...]:
    """The axis, if the model accepts other sizes of it; empty where it does not."""

    def accepts(candidate: int) -> bool:
        return problem.output_bytes(_with_sizes(problem.shapes, {name: candidate})) is not None

    others = [size + 1, size + 2, size + 3, size * 2, size // 2, size // 2 + 1]
    accepted = [other for other in others if other > 0 and accepts(other)]
    if len(accepted) < 2:
        return ()
    step = next((s for s in (1, 2, 4, 8, 16, 32, 64, 128) if size % s == 0 and accepts(size + s)), size)
    minimum = step * _least(size // step, lambda steps: accepts(step * steps))
    return (Axis(name=name, cuda=size, cpu=size, minimum=minimum, multiple_of=step),)


def _least(accepted: int, accepts: Callable[[int], bool]) -> int:
    """The least accepted number, by bisection from one that is: whoever accepts a size accepts larger ones."""
    refused = 0
    while accepted - refused > 1:
        middle = (accepted + refused) // 2
        if accepts(middle):
            accepted = middle
        else:
            refused = middle
    return accepted


def _with_sizes(shapes: _Shapes, sizes: dict[str, int]) -> _Shapes:
    """The shapes with dimension 0 (`N`) and the last one (`L`) replaced."""
    replaced = []
    for shape in shapes:
        dims = list(shape)
        if "N" in sizes:
            dims[0] = sizes["N"]
        if "L" in sizes:
            dims[-1] = sizes["L"]
        replaced.append(tuple(dims))
    return tuple(replaced)


def _host_sizes(problem: _Problem, axes: tuple[Axis, ...]) -> dict[str, int]:
    """Sizes that a host can call in milliseconds: the axis that has most room is halved until the tensors are small."""
    sizes = {axis.name: axis.cuda for axis in axes}
    while _bytes(problem, sizes) > _HOST_BYTES:
        halved = {axis.name: sizes[axis.name] // 2 // axis.multiple_of * axis.multiple_of for axis in axes}
        room = [axis for axis in axes if halved[axis.name] >= max(axis.minimum, axis.multiple_of)]
        room = [a for a in room if _accepted(problem, {**sizes, a.name: halved[a.name]})]
        if not room:
            break
        widest = max(room, key=lambda axis: sizes[axis.name])
        sizes[widest.name] = halved[widest.name]
    return sizes


def _accepted(problem: _Problem, sizes: dict[str, int]) -> bool:
    return problem.output_bytes(_with_sizes(problem.shapes, sizes)) is not None


def _bytes(problem: _Problem, sizes: dict[str, int]) -> int:
    shapes = _with_sizes(problem.shapes, sizes)
    inputs = sum(math.prod(s) * t.element_size() for s, t in zip(shapes, problem.inputs, strict=True))
    return inputs + (problem.output_bytes(shapes) or 0)


def _changed_state(problem: _Problem, axes: tuple[Axis, ...]) -> tuple[str, ...]:
    """The buffers that one call in training mode changes, found on small inputs."""
    small = {axis.name: min(axis.cpu, _at_least(axis, 4)) for axis in axes}
    if not _accepted(problem, small):
        small = {axis.name: axis.cpu for axis in axes}
    inputs = [_narrowed(t, s) for t, s in zip(problem.inputs, _with_sizes(problem.shapes, small), strict=True)]
    model = problem.reference.model_class(*problem.reference.init_inputs).train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    if not before:
        return ()
    try:
        with torch.no_grad():
            model(*inputs)
    except Exception as error:
        raise TaskError(
            f"{problem.path}: Model does not run on the host with inputs of {[tuple(t.shape) for t in inputs]}: "
            f"{type(error).__name__}: {error}; correct the problem file, or state TASK = TaskFacts(...) in it"
        ) from error
    return tuple(name for name, buffer in model.named_buffers() if not torch.equal(buffer, before[name]))


def _at_least(axis: Axis, wanted: int) -> int:
    return max(axis.minimum, -(-wanted // axis.multiple_of) * axis.multiple_of)


def _narrowed(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    return tensor[tuple(slice(size) for size in shape)].contiguous()


def _input_spec(problem: _Problem, position: int, axes: tuple[Axis, ...]) -> InputSpec:
    tensor = problem.inputs[position]
    free = {axis.name for axis in axes}
    dims: list[int | str] = list(tensor.shape)
    if "N" in free:
        dims[0] = "N"
    if "L" in free:
        dims[-1] = "L"
    whole = not tensor.dtype.is_floating_point
    return InputSpec(
        name=f"input_{position}" if len(problem.inputs) > 1 else "x",
        dims=tuple(dims),
        dtype=str(tensor.dtype).removeprefix("torch."),
        domain=_domain(tensor),
        channel_dim=1 if tensor.dim() > 2 and not whole else None,
        high=int(tensor.max()) + 1 if whole and tensor.numel() else 2,
    )


def _domain(tensor: Tensor) -> Domain:
    if not tensor.dtype.is_floating_point:
        return "integer"
    return "real" if float(tensor.min()) < 0 else "nonnegative"


def _precision(problem: _Problem) -> TargetPrecision:
    """The class that PyTorch itself computes in: convolutions on float32 run in TF32 on the GPU by default."""
    dtypes = {tensor.dtype for tensor in problem.inputs}
    for dtype, precision in ((torch.float16, Precision.FP16), (torch.bfloat16, Precision.BF16)):
        if dtype in dtypes:
            return TargetPrecision(cuda=precision, cpu=precision)
    return TargetPrecision(cuda=Precision.TF32, cpu=Precision.FP32)


def _name(path: Path) -> str:
    """`67_conv_standard_1D.py` becomes `conv_standard_1d_67`."""
    words = [word for word in re.split(r"[^a-z0-9]+", path.stem.lower()) if word]
    numbers = []
    while words and words[0][0].isdigit():
        numbers.append(words.pop(0))
    return "_".join([*(words or ["problem"]), *numbers])


def _title(source: str, path: Path) -> str:
    match = re.search(r'class Model\b[^\n]*\n\s+[rR]?"""\s*([^\n"]+)', source)
    return match.group(1).strip() if match else path.stem.replace("_", " ")


def _notes(axes: tuple[Axis, ...], state: tuple[str, ...]) -> str:
    free = ", ".join(
        f"{axis.name} (at least {axis.minimum}, a multiple of {axis.multiple_of}; {axis.cpu} on the host)"
        for axis in axes
    )
    return (
        "Derived from the file: the inputs' shapes, types and signs from one call of get_inputs(); free axes by "
        f"probing the model: {free or 'none'}; buffers that training mode changes: {', '.join(state) or 'none'}; the "
        "precision class from the inputs' type. The model runs as constructed, in training mode. The benchmark shape "
        f"of {Target.CUDA} is the file's own. Causality is not derived."
    )
