"""How far an output is from the float64 oracle, and how far the precision class allows it to be."""

import math
from dataclasses import dataclass

import torch

from tasks.spec import Precision

HONEST_FACTOR = 4.0
"""An output may be this many times as wrong as PyTorch itself in the same class on the same inputs."""
PEAK_FACTOR = 10.0
"""The peak limit is at least this many times the RMS limit: the largest of many rounding errors is a few times their
RMS, and PyTorch's own largest may by luck be small."""
POOLED_BELOW = 32
"""A channel with fewer elements has no stable RMS of its own: the whole tensor's is its scale, and its error is not
judged apart from the whole tensor's."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of one output tensor."""

    rms: float
    """RMS of the error over the RMS of the oracle, whole tensor."""
    channel: float
    """The largest RMS error of one channel over that channel's RMS."""
    peak: float
    """The largest error of one element over its channel's RMS."""
    pattern_broken: int
    """How many elements are NaN or infinite where the oracle is finite, or the reverse, or infinite of another sign."""
    peak_at: tuple[int, ...]
    """Where the largest error (or the first broken element) is."""


@dataclass(frozen=True)
class Limits:
    """What the class allows for one output tensor."""

    rms: float
    channel: float
    peak: float

    def loosened(self, factor: float) -> "Limits":
        """The same limits, each times a factor."""
        return Limits(self.rms * factor, self.channel * factor, self.peak * factor)

    def used_by(self, errors: Errors) -> float:
        """The largest error over its limit: 1 is the edge."""
        return max(errors.rms / self.rms, errors.channel / self.channel, errors.peak / self.peak)

    def allow(self, errors: Errors) -> bool:
        """Whether every error is within its limit; NaN never is."""
        return (
            errors.pattern_broken == 0
            and errors.rms <= self.rms
            and errors.channel <= self.channel
            and errors.peak <= self.peak
        )


# RMS errors below these are honest in the class whatever PyTorch's own happens to be on these inputs. One fp32
# accumulator that adds n random products in order is off by u * sqrt(n / 6), with u = 2**-24 and n = 1,024 some 8e-7;
# PyTorch's blocked sums by a quarter of it. Winograd's F(4, 3) and F(4, 4), honest ways to do fewer multiplications,
# were seen at 1.5e-6, a two-hundredth of TF32's error. The 16-bit classes round their output once more, by half a unit
# in the last place, 2**-11 and 2**-8, at most: an RMS of about a third of that.
FLOORS = {Precision.FP32: 5e-6, Precision.TF32: 1e-5, Precision.FP16: 3e-4, Precision.BF16: 2.5e-3}


def measure(output: torch.Tensor, oracle: torch.Tensor) -> Errors:
    """The errors of an output against the oracle.

    Args:
        output: any floating dtype, the oracle's shape.
        oracle: float64, on the same device. Its dimension 1 is the channel where it has two or more dimensions.
    """
    wide = output.to(torch.float64)
    finite = torch.isfinite(oracle)
    broken = torch.where(finite, ~torch.isfinite(wide), ~((wide == oracle) | (torch.isnan(wide) & torch.isnan(oracle))))
    count = int(broken.sum())
    if count or oracle.numel() == 0:
        at = _unravel(int(broken.flatten().to(torch.int8).argmax()), oracle.shape) if count else ()
        return Errors(math.inf if count else 0.0, 0.0, 0.0, count, at)
    error = torch.where(finite, wide - oracle, 0.0)
    truth = torch.where(finite, oracle, 0.0)
    whole = _rms(truth).clamp_min(_SMALLEST)
    if oracle.ndim >= 2:
        others = tuple(dim for dim in range(oracle.ndim) if dim != 1)
        per_channel = error.square().mean(dim=others, keepdim=True).sqrt()
        scale = truth.square().mean(dim=others, keepdim=True).sqrt()
        if oracle.numel() // oracle.shape[1] < POOLED_BELOW:
            scale = torch.maximum(scale, whole)
            channel = float(_rms(error) / whole)
        else:
            channel = float((per_channel / scale.clamp_min(_SMALLEST)).max())
        scale = scale.clamp_min(_SMALLEST)
    else:
        scale, channel = whole, float(_rms(error) / whole)
    relative = (error / scale).abs()
    at = _unravel(int(relative.flatten().argmax()), oracle.shape)
    return Errors(float(_rms(error) / whole), channel, float(relative.max()), 0, at)


def measure_roughly(output: torch.Tensor, expected: torch.Tensor) -> Errors:
    """As `measure`, against an answer with rounding of its own: in its dtype, in a quarter of the time, with no place.

    Args:
        output: the expected tensor's shape and floating dtype, on the same device.
        expected: dimension 1 is the channel where it has two or more dimensions.
    """
    if not expected.numel():
        return Errors(0.0, 0.0, 0.0, 0, ())
    difference = output - expected
    others = [dim for dim in range(expected.ndim) if dim != 1] if expected.ndim >= 2 else list(range(expected.ndim))
    count = expected.numel() // (expected.shape[1] if expected.ndim >= 2 else 1)
    off, true = (torch.linalg.vector_norm(each, dim=others, dtype=torch.float32) for each in (difference, expected))
    largest = torch.linalg.vector_norm(difference, torch.inf, dim=others, dtype=torch.float32)
    whole = torch.linalg.vector_norm(true) / math.sqrt(expected.numel())
    scale = true / math.sqrt(count)
    if count < POOLED_BELOW:
        scale = torch.maximum(scale, whole)
    smallest = torch.finfo(torch.float32).tiny
    rms = float(torch.linalg.vector_norm(off) / math.sqrt(expected.numel()) / whole.clamp_min(smallest))
    scale = scale.clamp_min(smallest)
    channel = rms if count < POOLED_BELOW else float((off / math.sqrt(count) / scale).max())
    return Errors(rms, channel, float((largest / scale).max()), 0, ())


_SMALLEST = torch.finfo(torch.float64).tiny


def _rms(values: torch.Tensor) -> torch.Tensor:
    return values.square().mean().sqrt()


def _unravel(flat: int, shape: torch.Size) -> tuple[int, ...]:
    position = []
    for size in reversed(shape):
        position.append(flat % size)
        flat //= size
    return tuple(reversed(position))


def limits(precision: Precision, honest: list[Errors], typical_rms: float) -> Limits:
    """What the class allows.

    Args:
        precision: the task's class on this target.
        honest: errors of honest implementations of the class on the same inputs: PyTorch itself, and the reference
            with the operands of its products rounded to the class. One that overflows says nothing about rounding.
        typical_rms: the median over all trials of the honest RMS error; a tiny output's own error may be small by
            luck, and a verdict must not depend on luck.
    """
    floor = FLOORS[precision]
    honest = [errors for errors in honest if not errors.pattern_broken]
    rms = max(floor, HONEST_FACTOR * max([typical_rms, *(errors.rms for errors in honest)]))
    channel = max(rms, HONEST_FACTOR * max((errors.channel for errors in honest), default=0.0))
    peak = max(PEAK_FACTOR * channel, HONEST_FACTOR * max((errors.peak for errors in honest), default=0.0))
    return Limits(rms, channel, peak)
