"""The figures of a measurement from its raw samples: medians, their ratio, and its interval."""

import math

import numpy as np

from tools.results import Interval

CONFIDENCE = 0.99
RESAMPLES = 4000
_SEED = 20261130
"""The resampling is seeded, so that the same raw samples give the same interval every time."""

MOST_TURNS = 2520
"""The least common multiple of all numbers up to ten."""

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

    Ranks stand for samples until the end, because small whole numbers are sorted much faster.
    """
    ordered = np.unique(np.concatenate([np.asarray(block) for block in blocks]))
    ranks, turns = _rank_table(blocks, ordered)
    longest = ranks.shape[1]
    at = chosen.astype(np.int32)[..., None] * np.int32(longest * turns) + np.arange(longest, dtype=np.int32) * turns
    at += random.integers(0, turns, at.shape, dtype=np.uint16)
    rows = np.sort(np.take(ranks, at).reshape(len(chosen), -1), axis=1)
    counts = np.array([len(block) for block in blocks])[chosen].sum(axis=1)
    every = np.arange(len(rows))
    medians: np.ndarray = (ordered[rows[every, (counts - 1) // 2]] + ordered[rows[every, counts // 2]]) / 2.0
    return medians


def _rank_table(blocks: Blocks, ordered: np.ndarray) -> tuple[np.ndarray, int]:
    """For each block, each draw from it and each number below the second value: the rank of the sample that is drawn.

    Blocks differ in length: a draw that a shorter one does not have ranks last, so that it is sorted to the end. The
    numbers are so many that every sample of a block has as many of them (of blocks of ten or more, nearly as many).
    """
    longest, turns = max(map(len, blocks)), min(math.lcm(*map(len, blocks)), MOST_TURNS)
    kind = np.uint16 if len(ordered) < 1 << 16 else np.int32
    table = np.full((len(blocks), longest, turns), len(ordered), dtype=kind)
    for row, block in zip(table, blocks, strict=True):
        row[: len(block)] = np.searchsorted(ordered, np.asarray(block)[np.arange(turns) * len(block) // turns])
    return table, turns
