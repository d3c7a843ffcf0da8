"""Makes the inputs of timed calls: new values for every call, quickly, which no earlier call tells anything about."""

import itertools
from typing import NamedTuple

import torch

from tasks.spec import InputSpec
from tools.draws import USUAL, Draws, channel_shape, input_shape

SHORTEST = 500
"""An input whose longest dimension is shorter is drawn anew for every call. Of all pairs of rolls, the square of the
length, those of one difference are rolls of the same product: there are only as many products as the length. Of the
hundred or so calls of a measurement those whose product comes again must be too few to move a median."""

Bases = tuple[torch.Tensor, torch.Tensor]


class Made(NamedTuple):
    """How one input of one call is made: `roll(a) * roll(b) * scale + shift` of two bases."""

    bases: Bases
    rolls: tuple[int, int]
    """Along the longest dimension, one for each base."""
    scale: torch.Tensor
    """As the shift, it broadcasts against the input."""
    shift: torch.Tensor


Recipe = list[Made]
"""For each input, in the order of the task's facts. It keeps its bases, so it gives the same bits at any time."""


class FreshInputs:
    """The inputs of one subject's timed calls: `roll(a) * roll(b) * scale + shift` of two secret bases each.

    The product of two rolls makes them new: with one base, a candidate of a task that treats channels alone could put
    an answer together from earlier ones. Integers are sums of two rolls, modulo the spec's bound. Rolls are along the
    longest dimension; where that is too short to tell many calls apart, each call has bases of its own.
    """

    def __init__(self, specs: tuple[InputSpec, ...], sizes: dict[str, int], draws: Draws) -> None:
        self._specs = specs
        self._draws = draws
        self._shapes = [input_shape(spec, sizes) for spec in specs]
        self._bases = [self._pair(spec, shape) for spec, shape in zip(specs, self._shapes, strict=True)]

    @property
    def like(self) -> list[tuple[str, torch.Tensor]]:
        """Tensors with the names, shapes and dtypes of the inputs."""
        return [(spec.name, base) for spec, (base, _) in zip(self._specs, self._bases, strict=True)]

    def _pair(self, spec: InputSpec, shape: tuple[int, ...]) -> Bases:
        base = self._draws.input(spec, shape, USUAL)
        if not base.is_floating_point():
            return base, self._draws.input(spec, shape, USUAL)
        return base, self._draws.uniform(shape, 0.5, 1.5).to(base.dtype)

    def draw(self) -> Recipe:
        """How the inputs of one more call are made."""
        return [self._drawn(index) for index in range(len(self._specs))]

    def _drawn(self, index: int) -> Made:
        spec, shape = self._specs[index], self._shapes[index]
        longest = max(shape, default=1)
        if longest < SHORTEST:
            self._bases[index] = self._pair(spec, shape)
        per_channel = channel_shape(shape, spec.channel_dim)
        most = max(0, longest - 1)
        low = 0.0 if spec.domain == "nonnegative" else -0.5
        return Made(
            self._bases[index],
            (self._draws.integer(0, most), self._draws.integer(0, most)),
            self._draws.host_uniform(per_channel, 0.5, 1.5),
            self._draws.host_uniform(per_channel, low, 0.5),
        )

    def write(self, recipe: Recipe, buffers: list[torch.Tensor]) -> None:
        """Write the inputs of a recipe; the same recipe gives the same bits."""
        for spec, made, buffer in zip(self._specs, recipe, buffers, strict=True):
            for part, first in _rolled(buffer, made.bases[0], made.rolls[0]):
                part.copy_(first)
            for part, second in _rolled(buffer, made.bases[1], made.rolls[1]):
                if buffer.is_floating_point():
                    part.mul_(second)
                else:
                    part.add_(second)
            if buffer.is_floating_point():
                buffer.mul_(made.scale.to(buffer.device)).add_(made.shift.to(buffer.device))
            else:
                buffer.remainder_(spec.high)

    def made(self, recipe: Recipe) -> list[torch.Tensor]:
        """The inputs of a recipe in new memory."""
        buffers = [torch.empty_like(made.bases[0]) for made in recipe]
        self.write(recipe, buffers)
        return buffers


def longest_dim(shape: tuple[int, ...]) -> int:
    """The longest dimension, the last of several equally long ones; the shape has one at least."""
    return max(range(len(shape)), key=lambda dim: (shape[dim], dim))


def _rolled(buffer: torch.Tensor, base: torch.Tensor, roll: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parts of a buffer, each with the part of `torch.roll(base, roll, longest_dim(...))` that belongs there, without a
    copy."""
    if not base.ndim or not base.numel():
        return [(buffer, base)]
    dim = longest_dim(tuple(base.shape))
    length = base.shape[dim]
    at = roll % length
    rest = length - at
    return [
        (buffer.narrow(dim, at, rest), base.narrow(dim, 0, rest)),
        (buffer.narrow(dim, 0, at), base.narrow(dim, rest, at)),
    ]


class CacheFlush:
    """Reads more than the caches hold. Reading leaves no dirty lines whose write-back a timed call would pay.

    A GPU reads a buffer of 2.5 times their size in microseconds. On the host that takes longer than most calls (10 ms
    for each 260 MB), so there one half is read after the other by turns: what is read was displaced by the other.
    The quarter more than the caches hold is for sets that get fewer lines than others.
    """

    def __init__(self, device: str, cache_bytes: int) -> None:
        # Of floats: the host adds up whole numbers fifty times more slowly.
        buffer = torch.ones(max(2, 5 * cache_bytes // 8), dtype=torch.float32, device=device)
        self._parts = itertools.cycle(buffer.chunk(2) if device == "cpu" else (buffer,))

    def run(self) -> None:
        """Displace whatever the caches hold."""
        next(self._parts).sum()
