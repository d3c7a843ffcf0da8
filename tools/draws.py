"""Draws the values of inputs and parameters, and the shapes they come in. Seeds never leave the judge."""

import math
import os
from dataclasses import dataclass

import torch

from tasks.spec import Axis, InputSpec, Target, TaskFacts
from tools.worker.shared_memory import dtype_of


@dataclass(frozen=True)
class InputKind:
    """A distribution of input values: `scale * (spread * z + offset)` with z standard normal.

    Spread and offset differ by channel, so that a kernel that ignores a channel's mean or mixes channels up is seen.
    """

    name: str
    offset: float
    """The largest offset of a channel; each channel's is uniform between its negative and itself."""
    scale: float = 1.0


USUAL = InputKind("channel offsets", offset=1.0)
FAR = InputKind("large offset", offset=30.0)
# TF32 and bf16 have the range of fp32, fp16 has not: 1e5 overflows fp16 and 1e-6 underflows it, which is the only way
# in which fp16 arithmetic differs from TF32 arithmetic (both keep 10 bits).
LARGE = InputKind("scaled by 1e5", offset=1.0, scale=1e5)
SMALL = InputKind("scaled by 1e-6", offset=1.0, scale=1e-6)


def secret_generator(device: str) -> torch.Generator:
    """A generator whose seed comes from the operating system and is kept nowhere else."""
    generator = torch.Generator(device)
    generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
    return generator


class Draws:
    """Draws tensors on one device from one secret generator."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._random = secret_generator(device)
        self._host = secret_generator("cpu")

    def uniform(self, shape: tuple[int, ...], low: float, high: float) -> torch.Tensor:
        """float32, uniform in [low, high)."""
        return torch.rand(shape, generator=self._random, device=self.device) * (high - low) + low

    def host_uniform(self, shape: tuple[int, ...], low: float, high: float) -> torch.Tensor:
        """As `uniform`, on the host, so that drawing between timed calls leaves the GPU alone."""
        return torch.rand(shape, generator=self._host) * (high - low) + low

    def integer(self, low: int, high: int) -> int:
        """A whole number, low <= n <= high."""
        return int(torch.randint(low, high + 1, (), generator=self._host))

    def input(self, spec: InputSpec, shape: tuple[int, ...], kind: InputKind) -> torch.Tensor:
        """An input tensor of the spec's dtype, its channels with means and scales of their own."""
        dtype = dtype_of(spec.dtype)
        if spec.domain == "integer":
            drawn = torch.randint(0, spec.high, shape, generator=self._random, device=self.device)
            return drawn.to(dtype)
        per_channel = channel_shape(shape, spec.channel_dim)
        spread = self.uniform(per_channel, 0.5, 1.5)
        if spec.domain == "nonnegative":
            values = self.uniform(shape, 0.0, 1.0) * spread + self.uniform(per_channel, 0.0, kind.offset)
        else:
            values = torch.randn(shape, generator=self._random, device=self.device) * spread
            values += self.uniform(per_channel, -kind.offset, kind.offset)
        return (values * kind.scale).to(dtype)

    def state(self, template: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Values for every parameter and buffer of a reference; `template` is its state dict as constructed."""
        return {name: self._state_value(name, tensor) for name, tensor in template.items()}

    def _state_value(self, name: str, like: torch.Tensor) -> torch.Tensor:
        shape = tuple(like.shape)
        leaf = name.rsplit(".", 1)[-1]
        if not like.is_floating_point():
            return torch.full(shape, self.integer(1, 100), dtype=like.dtype, device=self.device)
        if leaf == "running_var":
            value = self.uniform(shape, 0.5, 2.0)
        elif like.ndim >= 2:
            # Each output is then a sum of about unit variance, whatever the layer's width.
            fan_in = max(1, math.prod(shape[1:]))
            value = torch.randn(shape, generator=self._random, device=self.device) / math.sqrt(fan_in)
        elif leaf == "weight":
            value = self.uniform(shape, 0.5, 1.5)
        else:
            value = torch.randn(shape, generator=self._random, device=self.device) * 0.5
        return value.to(like.dtype)


def channel_shape(shape: tuple[int, ...], channel_dim: int | None) -> tuple[int, ...]:
    """A shape that broadcasts one value per channel over a tensor; one value in all where it has no channels."""
    if channel_dim is None or channel_dim >= len(shape):
        return (1,) * len(shape)
    return tuple(size if dim == channel_dim else 1 for dim, size in enumerate(shape))


def input_shape(spec: InputSpec, sizes: dict[str, int]) -> tuple[int, ...]:
    """The shape of an input for given axis sizes."""
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.dims)


@dataclass(frozen=True)
class Trial:
    """One untimed check: a shape, a kind of input, and which of the two parameter sets."""

    sizes: dict[str, int]
    kind: InputKind
    instance: int

    @property
    def label(self) -> str:
        """How messages name this trial."""
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{sizes}, {self.kind.name}"


def trials(facts: TaskFacts, target: Target, draws: Draws) -> tuple[Trial, ...]:
    """The untimed checks of a candidate, drawn anew for each.

    They hold the smallest valid shape, a length shorter than the receptive field, lengths that are no multiple of any
    tile, a batch of one and others, the benchmark shape, and every kind of input.
    """
    field = max(2, facts.receptive_field)
    longest = 3 * field + 700
    wanted = (
        (1, 1, USUAL, 0),
        (draws.integer(2, 4), max(1, field // 2), USUAL, 0),
        (draws.integer(2, 3), 2 * draws.integer(field // 2 + 40, longest // 2) + 1, FAR, 0),
        (1, 64 * draws.integer(field // 64 + 1, longest // 64) + 1, LARGE, 1),
        (draws.integer(3, 5), 2 * draws.integer(field // 2 + 40, longest // 2) + 1, SMALL, 1),
    )
    drawn = [Trial(_fit(facts, batch, length), kind, instance) for batch, length, kind, instance in wanted]
    drawn.append(Trial(facts.benchmark_sizes(target), USUAL, 1))
    return tuple(drawn)


def _fit(facts: TaskFacts, batch: int, length: int) -> dict[str, int]:
    """Axis sizes near the wanted batch and length that the task's rules allow; the length is the last axis."""
    sizes = {}
    for index, axis in enumerate(facts.axes):
        is_length = index == len(facts.axes) - 1 and len(facts.axes) > 1
        sizes[axis.name] = valid_size(axis, length if is_length else batch)
    return sizes


def valid_size(axis: Axis, wanted: int) -> int:
    """The smallest size from the wanted one on that the axis's rules allow."""
    return -(-max(axis.minimum, wanted) // axis.multiple_of) * axis.multiple_of
