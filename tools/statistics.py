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


def ratio_interval(numerator: Blocks, denominator: Blocks) -> Interval:
    """A percentile bootstrap interval for the ratio of medians.

    Blocks are resampled whole and in pairs (the first of each side together, and so on), because samples of one block
    share the state of the machine. Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.

    Raises:
        ValueError: the sides do not hold the same number of blocks.
    """
    if len(numerator) != len(denominator):
        raise ValueError(f"{len(numerator)} and {len(denominator)} blocks cannot be paired")
    random = np.random.default_rng(_SEED)
    tops = [np.asarray(block, dtype=np.float64) for block in numerator]
    bottoms = [np.asarray(block, dtype=np.float64) for block in denominator]
    ratios = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        chosen = random.integers(0, len(tops), len(tops))
        top = np.concatenate([_resampled(tops[j], random) for j in chosen])
        bottom = np.concatenate([_resampled(bottoms[j], random) for j in chosen])
        ratios[i] = np.median(top) / np.median(bottom)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(ratios, [tail, 1.0 - tail])
    return Interval(low=float(low), high=float(high))


def widened(interval: Interval, share: float) -> Interval:
    """An interval widened by a systematic uncertainty, given as a share of the ratio."""
    return Interval(low=interval.low * (1.0 - share), high=interval.high * (1.0 + share))


def _resampled(block: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return block[random.integers(0, len(block), len(block))]
