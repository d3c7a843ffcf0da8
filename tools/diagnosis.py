"""Which class of mistake a wrong output looks like, by its pattern alone; silent where it looks like none.

What it says names a kind of mistake and places, never right values beyond what the comparison itself says. Each check
is a pure function of what is wrong; the first that is certain enough speaks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from tools.accuracy import SMALLEST_RMS, Limits, measure

NEARLY_ALL = 0.97
"""A transformed answer must fit so many elements: at the edges, where other values enter, it never does."""
FEW = 0.5
"""Where no more elements than this are wrong, their places tell; otherwise what they were transformed by does."""
LEAST_LENGTH = 16
"""Shorter outputs fit too many patterns."""
MOST_SHIFTED = 64
_ROUNDING_RMS, _ROUNDING_PEAK = 0.01, 0.1
_STRIPES = (2, 4, 8, 16, 32)
_EDGE = 8
_LARGEST_TILE = 1024
_MOST_CHANNELS = 1024


@dataclass(frozen=True)
class Wrong:
    """A wrong output beside the right one, float64 on one device: dimensions sample, channel, length."""

    output: torch.Tensor
    exact: torch.Tensor
    limits: Limits

    @cached_property
    def tolerance(self) -> torch.Tensor:
        """How far an element may be off, by channel."""
        scale = self.exact.square().mean((0, 2), keepdim=True).sqrt().clamp_min(SMALLEST_RMS)
        return scale * self.limits.peak

    @cached_property
    def off(self) -> torch.Tensor:
        """Which elements are off by more than that; those that are NaN or infinite are."""
        return ~((self.output - self.exact).abs() <= self.tolerance)

    @cached_property
    def share(self) -> float:
        """The share of elements that are off."""
        return float(self.off.double().mean())

    @property
    def length(self) -> int:
        """Of the last dimension."""
        return self.exact.shape[-1]

    @cached_property
    def columns(self) -> list[int]:
        """The positions of the last dimension at which anything is off."""
        return [int(at) for at in self.off.any(0).any(0).nonzero().flatten()]

    def fits(self, output: torch.Tensor, exact: torch.Tensor) -> bool:
        """Whether nearly all elements of one part are those of another; and whether these are not all alike."""
        near = (output - exact).abs() <= self.tolerance
        return bool(near.double().mean() >= NEARLY_ALL) and bool(((exact - exact.mean()).abs() > self.tolerance).any())


def diagnose(output: torch.Tensor, exact: torch.Tensor, limits: Limits) -> str:
    """A sentence on the likely class of mistake, or an empty text.

    Args:
        output: floating, of two or more dimensions; dimension 1 is the channel.
        exact: the oracle's answer, in the same shape.
        limits: what the class allows.
    """
    wrong = _flattened(output, exact, limits)
    if wrong is None:
        return ""
    if found := _rounding(wrong):
        return found
    if not wrong.share:
        return ""
    checks: tuple[Callable[[Wrong], str], ...]
    if wrong.share <= FEW:
        checks = (_samples, _channels, _stripes, _ends)
    else:
        checks = (_constant, _shifted, _reversed, _permuted, _scaled, _offset, _statistics)
    return next((found for check in checks if (found := check(wrong))), "")


def _flattened(output: torch.Tensor, exact: torch.Tensor, limits: Limits) -> Wrong | None:
    """Both in three dimensions; None where they are too short to show a pattern, or of another form."""
    if output.shape != exact.shape or output.ndim < 2 or not torch.isfinite(exact).all():
        return None
    ours, theirs = (value.double().reshape(*value.shape[:2], -1) for value in (output, exact))
    return None if ours.shape[-1] < LEAST_LENGTH else Wrong(ours, theirs, limits)


def _rounding(wrong: Wrong) -> str:
    """Small errors of about the same size everywhere."""
    errors = measure(wrong.output, wrong.exact)
    if errors.pattern_broken or not errors.rms < _ROUNDING_RMS or not errors.peak < _ROUNDING_PEAK:
        return ""
    error = (wrong.output - wrong.exact).square()
    by_place = error.mean((0, 1)).sqrt()
    by_channel = error.mean((0, 2)).sqrt() / wrong.exact.square().mean((0, 2)).sqrt().clamp_min(SMALLEST_RMS)
    even = all(float((values > values.mean() / 3).double().mean()) > 0.8 for values in (by_place, by_channel))
    if not even:
        return ""
    size = "TF32 or fp16 operands" if errors.rms < 1.5e-3 else "bf16 operands"
    if errors.rms < 1e-4:
        size = "a long sum in one fp32 accumulator or a fast approximation such as __expf"
    return f"too little precision: the error is small and even, of the size that {size} make."


def _samples(wrong: Wrong) -> str:
    bad = wrong.off.any(2).any(1)
    if len(bad) < 2 or bool(bad.all()):
        return ""
    first = int(bad.int().argmax())
    if first and bool(bad[first:].all()):
        of = "but the first is" if first == 1 else f"from {first} on is"
        return f"a batch index: no sample {of} right, the earlier ones are. Look at strides and offsets of dimension 0."
    return ""


def _channels(wrong: Wrong) -> str:
    bad = wrong.off.any(2).any(0)
    if len(bad) < 2 or bool(bad.all()):
        return ""
    first = int(bad.int().argmax())
    if first and bool(bad[first:].all()) and float(wrong.off[:, first:].double().mean()) > FEW:
        return (
            f"a missing tail of channels: those from {first} on are wrong, the earlier ones are right. Look at the "
            f"last block of channels ({len(bad)} of them)."
        )
    return ""


def _stripes(wrong: Wrong) -> str:
    bad = set(wrong.columns)
    for period in _STRIPES:
        residues = {at % period for at in bad}
        places = [at for at in range(wrong.length) if at % period in residues]
        if 2 * len(residues) <= period and 3 * period <= wrong.length and len(bad) >= 0.9 * len(places):
            which = ", ".join(map(str, sorted(residues)[:4]))
            return (
                f"a vector or a thread's group of outputs: exactly the positions t with t % {period} in ({which}) are "
                "wrong. Look at how lanes of a vector load or store, or registers of a thread, map to positions."
            )
    return ""


def _ends(wrong: Wrong) -> str:
    """Errors at the start or the end of the last dimension only."""
    bad, length = set(wrong.columns), wrong.length
    head = next((at for at in range(length) if at not in bad), length)
    tail = next((at for at in range(length) if length - 1 - at not in bad), length)
    if head + tail != len(bad):
        return ""
    unwritten = wrong.output[..., length - tail :][wrong.off[..., length - tail :]]
    empty = bool(((unwritten == 0) | ~torch.isfinite(unwritten)).all())
    start = length - tail
    tile = min(start & -start, _LARGEST_TILE)
    if tail and not head and (empty or (tile >= 4 and tail < tile)):
        how = "hold zeros or no numbers, as if never written" if empty else "are wrong"
        begin = f"; {start}, where they begin, is a multiple of {tile}" if tile >= 4 else ""
        return (
            f"a missing tail: the last {tail} of {length} positions {how}{begin}. Handle lengths that are no multiple "
            "of the tile or vector."
        )
    if max(head, tail) > max(_EDGE, length // 4):
        return ""
    if head and tail:
        return f"padding: only the first {head} and the last {tail} positions are wrong, where the input is padded."
    if head:
        return f"padding: only the first {head} positions are wrong, where the left edge of the input is padded."
    return f"padding: only the last {tail} positions are wrong, where the right edge of the input is padded."


def _constant(wrong: Wrong) -> str:
    if bool((wrong.output == 0).all()):
        return "nothing was computed: the output is zero everywhere. Is the kernel launched, and with a grid?"
    if bool((~torch.isfinite(wrong.output)).all()):
        return "nothing was written: the output is NaN or infinite everywhere."
    return ""


def shift_between(output: torch.Tensor, exact: torch.Tensor, limits: Limits) -> int | None:
    """By how many steps of the last dimension an output comes too late, negative if too early; None where by none."""
    wrong = _flattened(output, exact, limits)
    return None if wrong is None else _shift(wrong)


def _shift(wrong: Wrong) -> int | None:
    for step in range(1, min(MOST_SHIFTED, wrong.length // 2) + 1):
        later = wrong.fits(wrong.output[..., step:], wrong.exact[..., :-step])
        earlier = wrong.fits(wrong.output[..., :-step], wrong.exact[..., step:])
        if later != earlier:
            return step if later else -step
    return None


def _shifted(wrong: Wrong) -> str:
    step = _shift(wrong)
    if step is None:
        return ""
    where = f"t - {step}" if step > 0 else f"t + {-step}"
    return (
        f"off by {abs(step)} along the length: output t is what {where} should be. Look at the padding, and at which "
        "input tap j of output t reads."
    )


def _reversed(wrong: Wrong) -> str:
    if wrong.fits(wrong.output, wrong.exact.flip(-1)):
        return "the output is reversed along the length."
    return ""


def _permuted(wrong: Wrong) -> str:
    """Every channel of the output is another channel of the right one."""
    channels = wrong.exact.shape[1]
    if not 2 <= channels <= _MOST_CHANNELS or not torch.isfinite(wrong.output).all():
        return ""
    ours, theirs = (value.transpose(0, 1).flatten(1) for value in (wrong.output, wrong.exact))
    distances = torch.cdist(ours, theirs, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.argmin(1)
    moved = theirs[nearest]
    near = (ours - moved).abs() <= wrong.tolerance.flatten()[nearest][:, None]
    if float(near.double().mean()) < NEARLY_ALL or len(nearest.unique()) != channels:
        return ""
    first = int((nearest != torch.arange(channels, device=nearest.device)).int().argmax())
    return (
        f"channels are exchanged: output channel {first} is what channel {int(nearest[first])} should be. Look at the "
        "order of the dimensions of the weight, or of channel indices within a tile."
    )


def _scaled(wrong: Wrong) -> str:
    """All elements are the right ones times one factor."""
    if not torch.isfinite(wrong.output).all():
        return ""
    factor = float((wrong.output * wrong.exact).sum() / wrong.exact.square().sum().clamp_min(SMALLEST_RMS))
    if not wrong.fits(wrong.output, factor * wrong.exact) or abs(factor) < 1e-3:
        return ""
    return "a constant factor: the whole output is the right one times one number. Look at what a sum is divided by."


def _offset(wrong: Wrong) -> str:
    """Every channel is the right one plus a number of its own."""
    difference = wrong.output - wrong.exact
    offset = difference.mean((0, 2), keepdim=True)
    if not wrong.fits(wrong.output, wrong.exact + offset):
        return ""
    return "a bias: in every channel the output is off by one number. Look at which bias is added, and whether."


def _statistics(wrong: Wrong) -> str:
    """Every channel of every sample is a linear function of the right one."""
    ours, theirs = wrong.output, wrong.exact
    mean = theirs.mean(2, keepdim=True)
    spread = (theirs - mean).square().sum(2, keepdim=True).clamp_min(SMALLEST_RMS)
    slope = ((ours - ours.mean(2, keepdim=True)) * (theirs - mean)).sum(2, keepdim=True) / spread
    fitted = ours.mean(2, keepdim=True) + slope * (theirs - mean)
    if not wrong.fits(ours, fitted) or not bool((slope.abs() > 1e-3).all()):
        return ""
    return (
        "a wrong reduction: in every channel of every sample the output is the right one times a number plus a number. "
        "Look at the mean and variance of a normalisation: over which elements, divided by what, with which epsilon, "
        "weight and bias."
    )
