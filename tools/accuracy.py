"""How far an output is from the float64 oracle, and how far the precision class allows it to be."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from tasks.spec import Precision
from tools.channel_sums import ChannelSums, Found
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

ROUGH_DOWN_TO = 1e-15
"""A channel of a smaller RMS is not measured roughly: in float32, squares of what is below 1e-19 are nothing, and an
error four digits smaller than its channel must still be something."""


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
    shape = tuple(oracle.shape)
    found = _found(output, oracle, careful=False)
    # A sum over what is not finite is not finite itself, so the usual case needs no look at single elements.
    if not math.isfinite(float(found.truth.sum() + found.error.sum())):
        found = _found(output, oracle, careful=True)
    if found.broken:
        return Errors(math.inf, 0.0, 0.0, found.broken, _unravel(found.broken_at, shape))
    return _errors(found, shape)


def _found(output: torch.Tensor, oracle: torch.Tensor, *, careful: bool) -> Found:
    sums = ChannelSums(tuple(oracle.shape), oracle.device, careful=careful)
    for piece in pieces_of(oracle):
        sums.add(piece, output[piece], oracle[piece])
    return sums.found()


def _errors(found: Found, shape: tuple[int, ...]) -> Errors:
    count = math.prod(shape)
    if count == 0:
        return NO_ERROR
    per_channel = count // len(found.error)
    whole = (found.truth.sum() / count).sqrt().clamp_min(SMALLEST_RMS)
    rms = float((found.error.sum() / count).sqrt() / whole)
    scale = (found.truth / per_channel).sqrt()
    if len(shape) < 2 or per_channel < POOLED_BELOW:
        scale, channel = torch.maximum(scale, whole), rms
    else:
        scale = scale.clamp_min(SMALLEST_RMS)
        channel = float(((found.error / per_channel).sqrt() / scale).max())
    relative = found.largest / scale
    peak = relative.max()
    return Errors(rms, channel, float(peak), 0, _unravel(int(found.largest_at[relative == peak].min()), shape))


def measure_roughly(output: torch.Tensor, expected: torch.Tensor) -> Errors:
    """As `measure`, against an answer with rounding of its own: in its dtype, in a quarter of the time, with no place.
    `measure` itself answers where squares in float32 are infinite or nothing.

    Args:
        output: the expected tensor's shape and floating dtype, on the same device.
        expected: dimension 1 is the channel where it has two or more dimensions.
    """
    if not expected.numel():
        return NO_ERROR
    off, true, largest = _rough_sums(output, expected)
    count = expected.numel() // len(true)
    whole = (true.mean() / count).sqrt()
    scale = (true / count).sqrt()
    # Infinities in their places are right, and differences of them are no numbers.
    if not torch.isfinite(whole) or float(scale.min()) < ROUGH_DOWN_TO:
        return measure(output, expected)
    rms = float((off.mean() / count).sqrt() / whole)
    if count < POOLED_BELOW:
        scale, channel = torch.maximum(scale, whole), rms
    else:
        channel = float(((off / count).sqrt() / scale).max())
    return Errors(rms, channel, float((largest / scale).max()), 0, ())


def _rough_sums(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """For each channel the squared norms of the difference and of what is expected, and the largest difference; on the
    host, for what follows is little and would be a dozen launches and waits on a GPU."""
    shape = tuple(expected.shape)
    others = [dim for dim in range(len(shape)) if dim != 1 or len(shape) < 2]

    def norms(piece: Piece) -> torch.Tensor:
        difference = output[piece] - expected[piece]
        off = torch.linalg.vector_norm(difference, dim=others, dtype=torch.float32)
        true = torch.linalg.vector_norm(expected[piece], dim=others, dtype=torch.float32)
        largest = torch.linalg.vector_norm(difference, torch.inf, dim=others, dtype=torch.float32)
        return torch.stack((off, true, largest)).reshape(3, -1)

    cut = list(pieces_of(expected))
    if len(cut) == 1:
        sums = norms(cut[0]).cpu()
        sums[:2].square_()
        return sums
    sums = torch.zeros(3, shape[1] if len(shape) >= 2 else 1, device=expected.device)
    for piece in cut:
        channels = piece[1] if len(shape) >= 2 else slice(0, 1)
        part = norms(piece)
        sums[:2, channels] += part[:2].square()
        sums[2, channels] = torch.maximum(sums[2, channels], part[2])
    return sums.cpu()


def rms_of(values: torch.Tensor) -> float:
    """The RMS of all finite elements, infinite and NaN ones counting as zeros."""
    sums = ChannelSums(tuple(values.shape), values.device, careful=True)
    for piece in pieces_of(values):
        sums.add(piece, values[piece], values[piece])
    return math.sqrt(float(sums.found().truth.sum()) / max(1, values.numel()))


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
