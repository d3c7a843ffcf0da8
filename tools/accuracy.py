"""How far an output is from the float64 oracle, and how far the precision class allows it to be."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from tasks.spec import Precision
from tools.pieces import Piece, pieces_of

HONEST_FACTOR = 4.0
"""An output may be this many times as wrong as PyTorch itself in the same class on the same inputs."""
CUT_FACTOR = 1.25
"""An output may be this many times as wrong as the class's operands make it when they are cut, not rounded. Cutting
errs toward zero, 2.6 times as much as rounding after one product and more after several, as errors of one sign add up.
The inputs determine it wholly, hence the small factor: bf16 errs 8 times as much as rounding to TF32 and must fail."""
PEAK_FACTOR = 10.0
"""The peak limit is at least this many times the RMS limit: the largest of many rounding errors is a few times their
RMS, and PyTorch's own largest may by luck be small."""
POOLED_BELOW = 32
"""A channel with fewer elements has no stable RMS of its own: the whole tensor's is its scale, and its error is not
judged apart from the whole tensor's."""

SMALLEST_RMS = 2.0**-100
"""No channel counts as smaller than this. Honest kernels compiled with --use_fast_math take fp32 numbers below 2**-126
as zeros, and others do not: of this, the finest limit of 5e-6 is as much as 335 of them."""


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


NO_ERROR = Errors(0.0, 0.0, 0.0, 0, ())


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
    """The errors of an output against the oracle; needs `CHECKING_BYTES` beside them at most, or
    `GPU_CHECKING_BYTES`.

    Args:
        output: any floating dtype, the oracle's shape.
        oracle: any floating dtype, float64 where it is the truth, on the same device. Its dimension 1 is the channel
            where it has two or more dimensions.
    """
    sums = _Sums(tuple(oracle.shape), oracle.device)
    for piece in pieces_of(oracle):
        sums.add(piece, output[piece], oracle[piece])
    return sums.errors()


class _Sums:
    """Sums over the pieces of a tensor, by channel; a tensor of less than two dimensions is one channel."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self.shape = shape
        channels = shape[1] if len(shape) >= 2 else 1
        self.error = torch.zeros(channels, dtype=torch.float64, device=device)
        """Of squares, as is `truth`."""
        self.truth = torch.zeros_like(self.error)
        self.largest = torch.full_like(self.error, -1.0)
        self.largest_at = torch.zeros(channels, dtype=torch.int64, device=device)
        self.broken = 0
        self.broken_at = 0

    def add(self, piece: Piece, output: torch.Tensor, oracle: torch.Tensor) -> None:
        """Take a piece into account; pieces come in the tensor's order."""
        wide, exact = output.to(torch.float64), oracle.to(torch.float64)
        finite = torch.isfinite(exact)
        same = (wide == exact) | (torch.isnan(wide) & torch.isnan(exact))
        broken = torch.where(finite, ~torch.isfinite(wide), ~same)
        count = int(broken.sum())
        if count and not self.broken:
            first = broken.flatten().to(torch.int8).argmax().reshape(1)
            self.broken_at = int(self._flat(piece, first, range(len(self.shape))))
        self.broken += count
        channels = piece[1] if len(self.shape) >= 2 else slice(0, 1)
        truth = self._rows(torch.where(finite, exact, 0.0))
        self.truth[channels] += truth.square().sum(1)
        error = self._rows(torch.where(finite, wide - exact, 0.0))
        self.error[channels] += error.square().sum(1)
        largest, index = error.abs().max(1)
        within = [dim for dim in range(len(self.shape)) if dim != 1]
        at = self._flat(piece, index, within)
        if len(self.shape) >= 2:
            numbers = torch.arange(channels.start, channels.stop, device=at.device)
            at = at + numbers * math.prod(self.shape[2:])
        larger = largest > self.largest[channels]
        self.largest_at[channels] = torch.where(larger, at, self.largest_at[channels])
        self.largest[channels] = torch.where(larger, largest, self.largest[channels])

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        return values.transpose(0, 1).flatten(1) if len(self.shape) >= 2 else values.reshape(1, -1)

    def _flat(self, piece: Piece, index: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """Positions in the whole tensor of indices that count through some dimensions of a piece."""
        flat = torch.zeros_like(index)
        for dim in reversed(dims):
            size = piece[dim].stop - piece[dim].start
            flat = flat + (piece[dim].start + index % size) * math.prod(self.shape[dim + 1 :])
            index = index // size
        return flat

    def errors(self) -> Errors:
        """The errors of all that was added."""
        if self.broken:
            return Errors(math.inf, 0.0, 0.0, self.broken, _unravel(self.broken_at, self.shape))
        count = math.prod(self.shape)
        if count == 0:
            return NO_ERROR
        per_channel = count // len(self.error)
        whole = (self.truth.sum() / count).sqrt().clamp_min(SMALLEST_RMS)
        rms = float((self.error.sum() / count).sqrt() / whole)
        scale = (self.truth / per_channel).sqrt()
        if len(self.shape) < 2 or per_channel < POOLED_BELOW:
            scale, channel = torch.maximum(scale, whole), rms
        else:
            scale = scale.clamp_min(SMALLEST_RMS)
            channel = float(((self.error / per_channel).sqrt() / scale).max())
        relative = self.largest / scale
        peak = relative.max()
        return Errors(rms, channel, float(peak), 0, _unravel(int(self.largest_at[relative == peak].min()), self.shape))


def measure_roughly(output: torch.Tensor, expected: torch.Tensor) -> Errors:
    """As `measure`, against an answer with rounding of its own: in its dtype, in a quarter of the time, with no place.

    Args:
        output: the expected tensor's shape and floating dtype, on the same device.
        expected: dimension 1 is the channel where it has two or more dimensions.
    """
    if not expected.numel():
        return NO_ERROR
    shape = tuple(expected.shape)
    others = [dim for dim in range(len(shape)) if dim != 1 or len(shape) < 2]
    off, true, largest = torch.zeros(3, shape[1] if len(shape) >= 2 else 1, device=expected.device)
    for piece in pieces_of(expected):
        channels = piece[1] if len(shape) >= 2 else slice(0, 1)
        difference = output[piece] - expected[piece]
        off[channels] += torch.linalg.vector_norm(difference, dim=others, dtype=torch.float32).square()
        true[channels] += torch.linalg.vector_norm(expected[piece], dim=others, dtype=torch.float32).square()
        most = torch.linalg.vector_norm(difference, torch.inf, dim=others, dtype=torch.float32)
        largest[channels] = torch.maximum(largest[channels], most)
    count = expected.numel() // len(true)
    smallest = torch.finfo(torch.float32).tiny
    whole = (true.mean() / count).sqrt().clamp_min(smallest)
    if not torch.isfinite(whole):
        # Infinities in their places are right, and differences of them are no numbers.
        return measure(output, expected)
    rms = float((off.mean() / count).sqrt() / whole)
    scale = (true / count).sqrt().clamp_min(smallest)
    if count < POOLED_BELOW:
        scale, channel = torch.maximum(scale, whole), rms
    else:
        channel = float(((off / count).sqrt() / scale).max())
    return Errors(rms, channel, float((largest / scale).max()), 0, ())


def rms_of(values: torch.Tensor) -> float:
    """The RMS of all finite elements, infinite and NaN ones counting as zeros."""
    sums = _Sums(tuple(values.shape), values.device)
    for piece in pieces_of(values):
        sums.add(piece, values[piece], values[piece])
    return math.sqrt(float(sums.truth.sum()) / max(1, values.numel()))


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    position = []
    for size in reversed(shape):
        position.append(flat % size)
        flat //= size
    return tuple(reversed(position))


def limits(precision: Precision, honest: list[Errors], typical_rms: float, cut: Errors = NO_ERROR) -> Limits:
    """What the class allows.

    Args:
        precision: the task's class on this target.
        honest: errors of honest implementations of the class on the same inputs: PyTorch itself, and the reference
            with the operands of its products rounded to the class. One that overflows says nothing about rounding.
        typical_rms: the median over all trials of the honest RMS error; a tiny output's own error may be small by
            luck, and a verdict must not depend on luck.
        cut: errors of the reference with the operands of its products cut to the class, where hardware does that.
    """
    floor = FLOORS[precision]
    honest = [errors for errors in honest if not errors.pattern_broken]
    rms = max(floor, HONEST_FACTOR * max([typical_rms, *(errors.rms for errors in honest)]), CUT_FACTOR * cut.rms)
    channel = max(rms, HONEST_FACTOR * _largest(errors.channel for errors in honest), CUT_FACTOR * cut.channel)
    peak = max(PEAK_FACTOR * channel, HONEST_FACTOR * _largest(errors.peak for errors in honest), CUT_FACTOR * cut.peak)
    return Limits(rms, channel, peak)


def _largest(errors: Iterable[float]) -> float:
    return max(errors, default=0.0)
