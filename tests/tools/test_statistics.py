"""Medians, and the interval of a ratio of medians."""

from random import Random
from statistics import median

import numpy as np
import pytest

from tools.results import Interval
from tools.statistics import Blocks, _resampled_medians, median_ns, ratio_interval

FIRST: Blocks = ((100, 104, 98), (103, 99), (101, 97, 102), (100,), (105, 96), (101, 99, 100))
SECOND: Blocks = ((52, 49, 50), (51,), (48, 50, 53), (50, 49), (50, 51, 47), (52, 50))


@pytest.mark.parametrize(
    ("blocks", "median"),
    [
        (((3,),), 3.0),
        (((1, 2), (3,)), 2.0),
        (((1, 2), (3, 10)), 2.5),
        (((9,), (1, 1, 1)), 1.0),
    ],
)
def test_the_median_is_that_of_all_samples(blocks: Blocks, median: float) -> None:
    assert median_ns(blocks) == median


def test_constant_blocks_have_a_point_as_interval() -> None:
    assert ratio_interval(((20, 20), (20,), (20,)), ((10,), (10, 10), (10,))) == Interval(low=2.0, high=2.0)


def test_the_interval_holds_the_ratio_of_medians() -> None:
    interval = ratio_interval(FIRST, SECOND)
    assert interval.holds(100 / 50)
    assert interval.low > 1.8
    assert interval.high < 2.2


def test_equal_sides_hold_one() -> None:
    assert ratio_interval(FIRST, FIRST).holds(1.0)


def test_scaling_a_side_scales_the_interval() -> None:
    tripled = tuple(tuple(3 * sample for sample in block) for block in FIRST)
    once, thrice = ratio_interval(FIRST, SECOND), ratio_interval(tripled, SECOND)
    assert (thrice.low, thrice.high) == pytest.approx((3 * once.low, 3 * once.high))


def test_the_same_samples_give_the_same_interval() -> None:
    assert ratio_interval(FIRST, SECOND) == ratio_interval(FIRST, SECOND)


def test_a_drift_that_both_sides_share_widens_nothing() -> None:
    """Blocks are resampled in pairs: in each pair the ratio is two, whatever the machine's pace was."""
    paces = (100, 130, 170, 220, 290, 380)
    slow = tuple((2 * pace,) for pace in paces)
    fast = tuple((pace,) for pace in paces)
    assert ratio_interval(slow, fast) == Interval(low=2.0, high=2.0)


def test_blocks_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1 blocks"):
        ratio_interval(((1,), (2,)), ((1,),))


def test_the_interval_is_the_bootstraps_by_definition() -> None:
    """Every resample written out: pairs of blocks with replacement, then samples of each with replacement."""
    random = Random(7)
    ratios = []
    for _ in range(20_000):
        pairs = random.choices(list(zip(FIRST, SECOND, strict=True)), k=len(FIRST))
        ours, theirs = (
            [sample for pair in pairs for sample in random.choices(pair[i], k=len(pair[i]))] for i in (0, 1)
        )
        ratios.append(median(ours) / median(theirs))
    ratios.sort()
    interval = ratio_interval(FIRST, SECOND)
    # The spread of a ratio is 4 %; a quantile of so few resamples is off by a tenth of that.
    assert interval.low == pytest.approx(ratios[100], abs=0.01)
    assert interval.high == pytest.approx(ratios[-101], abs=0.01)


def test_each_sample_of_a_block_is_drawn_as_often_as_the_others() -> None:
    """A single block of three: the median of three draws is the middle one with 13 of 27 chances, else 7 of 27 each."""
    chosen = np.zeros((27_000, 1), dtype=np.int64)
    medians = _resampled_medians(((10, 20, 30),), chosen, np.random.default_rng(3))
    counts = [int((medians == value).sum()) for value in (10, 20, 30)]
    assert counts == pytest.approx([7_000, 13_000, 7_000], abs=350)


def test_blocks_of_many_lengths_can_be_resampled() -> None:
    """Their least common multiple would need more memory than there is."""
    blocks = tuple(tuple(range(1000, 1000 + length)) for length in range(1, 60))
    interval = ratio_interval(blocks, blocks)
    assert interval.holds(1.0)
