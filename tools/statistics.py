"""The figures of a measurement from its raw samples: medians, their ratio, and its interval."""

import numpy as np

from tools.results import Interval

CONFIDENCE = 0.99
RESAMPLES = 4000
_SEED = 20261130
"""The resampling is seeded, so that the same raw samples give the same interval every time."""

Blocks = tuple[tuple[int, ...], ...]


def median_ns(blocks: Blocks) -> float:
    """The median of all samples."""
    return float(np.median(np.concatenate([np.asarray(block) for block in blocks])))


def ratio_interval(numerator: Blocks, denominator: Blocks, resamples: int = RESAMPLES) -> Interval:
    """A percentile bootstrap interval for the ratio of medians.

    Blocks are resampled whole and in pairs (the first of each side together, and so on), because samples of one block
    share the state of the machine. Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.

    Raises:
        ValueError: the sides do not hold the same number of blocks.
    """
    if len(numerator) != len(denominator):
        raise ValueError(f"{len(numerator)} and {len(denominator)} blocks cannot be paired")
    random = np.random.default_rng(_SEED)
    chosen = random.integers(0, len(numerator), (resamples, len(numerator)))
    ratios = _resampled_medians(numerator, chosen, random) / _resampled_medians(denominator, chosen, random)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(ratios, [tail, 1.0 - tail])
    return Interval(low=float(low), high=float(high))


def widened(interval: Interval, share: float) -> Interval:
    """An interval widened by a systematic uncertainty, given as a share of the ratio."""
    return Interval(low=interval.low * (1.0 - share), high=interval.high * (1.0 + share))


def _resampled_medians(blocks: Blocks, chosen: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """For each row of chosen blocks, the median of samples drawn from each of them with replacement, as many as it has.

    Rows differ in length: what is missing is infinite, so that it sorts to the end.
    """
    longest = max(len(block) for block in blocks)
    padded = np.array([[*block, *[np.inf] * (longest - len(block))] for block in blocks], dtype=np.float64)
    lengths = np.array([len(block) for block in blocks])[chosen]
    drawn = (random.random((*chosen.shape, longest)) * lengths[..., None]).astype(np.intp)
    samples = padded[chosen[..., None], drawn]
    samples[np.arange(longest) >= lengths[..., None]] = np.inf
    rows = np.sort(samples.reshape(len(chosen), -1), axis=1)
    counts = lengths.sum(axis=1)
    lower, upper = (np.take_along_axis(rows, at[:, None], axis=1)[:, 0] for at in ((counts - 1) // 2, counts // 2))
    medians: np.ndarray = (lower + upper) / 2.0
    return medians
