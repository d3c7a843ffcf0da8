"""Makes the inputs of timed calls: new values for every call, quickly, which no earlier call tells anything about."""

import itertools

import torch

from tasks.spec import InputSpec
from tools.draws import USUAL, Draws, channel_shape, input_shape

Recipe = list[tuple[int, int, torch.Tensor, torch.Tensor]]
"""For each input: two rolls along the last dimension, a scale and a shift, each of which broadcasts against it."""


class FreshInputs:
    """The inputs of one subject's timed calls: `roll(a) * roll(b) * scale + shift` of two secret bases each.

    The product of two rolls makes them new: with one base, a candidate of a task that treats channels alone could put
    an answer together from earlier ones. Integers are sums of two rolls, modulo the spec's bound.
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

    def _pair(self, spec: InputSpec, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        base = self._draws.input(spec, shape, USUAL)
        if not base.is_floating_point():
            return base, self._draws.input(spec, shape, USUAL)
        return base, self._draws.uniform(shape, 0.5, 1.5).to(base.dtype)

    def draw(self) -> Recipe:
        """How the inputs of one more call are made."""
        recipe: Recipe = []
        for spec, shape in zip(self._specs, self._shapes, strict=True):
            per_channel = channel_shape(shape, spec.channel_dim)
            last = max(0, shape[-1] - 1) if shape else 0
            low = 0.0 if spec.domain == "nonnegative" else -0.5
            recipe.append(
                (
                    self._draws.integer(0, last),
                    self._draws.integer(0, last),
                    self._draws.host_uniform(per_channel, 0.5, 1.5),
                    self._draws.host_uniform(per_channel, low, 0.5),
                )
            )
        return recipe

    def write(self, recipe: Recipe, buffers: list[torch.Tensor]) -> None:
        """Write the inputs of a recipe; the same recipe gives the same bits."""
        for spec, bases, made, buffer in zip(self._specs, self._bases, recipe, buffers, strict=True):
            for part, first in _rolled(buffer, bases[0], made[0]):
                part.copy_(first)
            for part, second in _rolled(buffer, bases[1], made[1]):
                if buffer.is_floating_point():
                    part.mul_(second)
                else:
                    part.add_(second)
            if buffer.is_floating_point():
                buffer.mul_(made[2].to(buffer.device)).add_(made[3].to(buffer.device))
            else:
                buffer.remainder_(spec.high)

    def made(self, recipe: Recipe) -> list[torch.Tensor]:
        """The inputs of a recipe in new memory."""
        buffers = [torch.empty_like(base) for base, _ in self._bases]
        self.write(recipe, buffers)
        return buffers


def _rolled(buffer: torch.Tensor, base: torch.Tensor, roll: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parts of a buffer, each with the part of `torch.roll(base, roll, -1)` that belongs there, without a copy."""
    length = base.shape[-1] if base.ndim else 0
    if not length:
        return [(buffer, base)]
    at = roll % length
    return [(buffer[..., at:], base[..., : length - at]), (buffer[..., :at], base[..., length - at :])]


class CacheFlush:
    """Reads more than the caches hold. Reading leaves no dirty lines whose write-back a timed call would pay.

    A GPU reads a buffer of 2.5 times their size in microseconds. On the host that takes longer than most calls (25 ms
    for a cache of 260 MB), so there one half is read after the other by turns: what is read was displaced by the other.
    The quarter more than the caches hold is for sets that get fewer lines than others.
    """

    def __init__(self, device: str, cache_bytes: int) -> None:
        # Of floats: the host adds up whole numbers fifty times more slowly.
        buffer = torch.ones(max(2, 5 * cache_bytes // 8), dtype=torch.float32, device=device)
        self._parts = itertools.cycle(buffer.chunk(2) if device == "cpu" else (buffer,))

    def run(self) -> None:
        """Displace whatever the caches hold."""
        next(self._parts).sum()
