"""Draws the values of inputs and parameters, and the shapes they come in. Seeds never leave the judge."""

import math
import os
from dataclasses import dataclass
from typing import Literal

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
    unevenness: float = 1.0
    """Each channel is scaled once more; the factors, evenly spaced in their logarithm, reach from 1 / this to this."""
    form: Literal["dense", "impulses", "constant"] = "dense"
    """Whether all elements are drawn; or a few, at one step of the last dimension those of every channel, the others
    being zero or denormal; or one for each channel of each sample, which all its elements have."""
    may_amplify: bool = True
    """Whether it is asked of a reference that makes much of rounding errors on such inputs."""


USUAL = InputKind("channel offsets", offset=1.0)
FAR = InputKind("large offset", offset=30.0)
# TF32 and bf16 have the range of fp32, fp16 has not: 1e5 overflows fp16 and 1e-6 underflows it, which is the only way
# in which fp16 arithmetic differs from TF32 arithmetic (both keep 10 bits).
LARGE = InputKind("large values", offset=1.0, scale=1e5)
SMALL = InputKind("small values", offset=1.0, scale=1e-6)
IMPULSES = InputKind("impulses among zeros and denormals", offset=1.0, form="impulses", may_amplify=False)
CONSTANT = InputKind("constant along the length", offset=1.0, form="constant", may_amplify=False)
UNEVEN = InputKind("channels of uneven scale", offset=1.0, unevenness=1e3, may_amplify=False)

IMPULSE_SHARE = 1 / 16
HALF_REACH = 1e2
"""float16 inputs are scaled by this or its inverse at most: their sums must stay below 65,504, and their values above
6e-5, where float16 loses bits."""


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
        reach = HALF_REACH if dtype is torch.float16 else math.inf
        size = math.log(min(kind.unevenness, reach))
        scale = min(max(kind.scale, 1 / reach), reach) * self._spread_out(per_channel, size).exp()
        spread = self.uniform(per_channel, 0.5, 1.5)
        varying = row_shape(shape, spec.channel_dim) if kind.form == "constant" else shape
        if spec.domain == "nonnegative":
            values = self.uniform(varying, 0.0, 1.0) * spread + self.uniform(per_channel, 0.0, kind.offset)
        else:
            values = torch.randn(varying, generator=self._random, device=self.device) * spread
            values += self.uniform(per_channel, -kind.offset, kind.offset)
        values = (values * scale).expand(shape)
        if kind.form == "impulses" and shape:
            values = self._impulses(values, dtype, signed=spec.domain == "real")
        return values.to(dtype).contiguous()

    def _spread_out(self, shape: tuple[int, ...], size: float) -> torch.Tensor:
        """Evenly spaced values from -size to size in random order, so that both ends occur in every draw."""
        count = math.prod(shape)
        if count == 1:
            return self.uniform(shape, -size, size)
        order = torch.randperm(count, generator=self._random, device=self.device)
        return torch.linspace(-size, size, count, device=self.device)[order].reshape(shape)

    def _impulses(self, values: torch.Tensor, dtype: torch.dtype, *, signed: bool) -> torch.Tensor:
        chance = self.uniform(tuple(values.shape), 0.0, 1.0)
        kept = chance < IMPULSE_SHARE
        # Without it, a channel of a small shape might have no impulse, and its denormals would be all there is of it.
        kept[..., self.integer(0, max(0, values.shape[-1] - 1))] = True
        denormal = self.uniform(tuple(values.shape), -1.0 if signed else 0.0, 1.0) * torch.finfo(dtype).tiny
        return torch.where(kept, values, torch.where(chance < 0.5, denormal, 0.0))

    def inputs(self, facts: TaskFacts, trial: "Trial") -> list[tuple[str, torch.Tensor]]:
        """All inputs of a trial by name, in the order of the task's facts."""
        return [(spec.name, self.input(spec, input_shape(spec, trial.sizes), trial.kind)) for spec in facts.inputs]

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


def row_shape(shape: tuple[int, ...], channel_dim: int | None) -> tuple[int, ...]:
    """A shape that broadcasts one value per channel and sample (dimension 0) over a tensor."""
    return shape[:1] + channel_shape(shape, channel_dim)[1:]


def input_shape(spec: InputSpec, sizes: dict[str, int]) -> tuple[int, ...]:
    """The shape of an input for given axis sizes."""
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.dims)


@dataclass(frozen=True)
class Trial:
    """One untimed check: a shape, a kind of input, and which of the two parameter sets."""

    sizes: dict[str, int]
    kind: InputKind
    instance: int
    calls: int = 1
    """How many times the same inputs are given."""

    @property
    def label(self) -> str:
        """How messages name this trial."""
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{sizes}, {self.kind.name}"


REPEATED_CALLS = 10
MANY = 40
"""The largest batch, where the benchmark shape has none that is larger."""


def trials(facts: TaskFacts, target: Target, draws: Draws) -> tuple[Trial, ...]:
    """The untimed checks of a candidate, drawn anew for each.

    They hold the smallest valid shape, a length shorter than the receptive field, lengths that are no multiple of any
    tile, a length between those and the benchmark's, a batch of one, few and many, the benchmark shape, and every kind
    of input. One of them is asked several times.
    """
    field = max(2, facts.receptive_field)
    longest = 3 * field + 700
    # The constant one is short, as long sums of equal terms err the same way at every step; and of several samples, as
    # a channel of one is a single sum, whose error and size are both a matter of luck.
    wanted = (
        (1, 1, USUAL, 0),
        (draws.integer(2, 4), max(1, field // 2), USUAL, 0),
        (draws.integer(2, 3), 2 * draws.integer(field // 2 + 40, longest // 2) + 1, FAR, 0),
        (8, field + draws.integer(12, 40), CONSTANT, 0),
        (1, 64 * draws.integer(field // 64 + 1, longest // 64) + 1, LARGE, 1),
        (draws.integer(3, 5), 2 * draws.integer(field // 2 + 40, longest // 2) + 1, SMALL, 1),
        (2, field + draws.integer(60, 120), IMPULSES, 1),
        (draws.integer(9, MANY), field + draws.integer(12, 40), USUAL, 1),
        (1, _between(longest, list(facts.benchmark_sizes(target).values()), draws), USUAL, 1),
    )
    drawn = [Trial(_fit(facts, batch, length), kind, instance) for batch, length, kind, instance in wanted]
    drawn.append(Trial(few_samples(facts, draws), UNEVEN, 1, REPEATED_CALLS))
    # Timed calls ask for the usual kind on this shape.
    drawn.append(Trial(facts.benchmark_sizes(target), LARGE, 1))
    return tuple(drawn)


def few_samples(facts: TaskFacts, draws: Draws) -> dict[str, int]:
    """Axis sizes of some samples a little longer than the receptive field, for calls that are made many times."""
    return _fit(facts, draws.integer(2, 3), max(2, facts.receptive_field) + draws.integer(60, 120))


def _between(longest: int, benchmark: list[int], draws: Draws) -> int:
    """A length between the longest of the small trials and the benchmark's, uniform in its logarithm."""
    most = max(longest, benchmark[-1] if len(benchmark) > 1 else 0)
    share = float(draws.host_uniform((), 0.0, 1.0))
    return int(longest * math.exp(share * math.log(most / longest)))


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
