"""Scores of worked examples, calculated by hand."""

import math

import pytest

from evals.scores import Outcome, count_verdicts, fast_p, geometric_mean, pass_at_k
from tools.verdict import Verdict


def correct(speedup: float) -> Outcome:
    return Outcome(verdict=Verdict.CORRECT, speedup=speedup)


SIX = (
    correct(2.0),
    correct(1.0),
    correct(0.5),
    Outcome(verdict=Verdict.INCORRECT),
    Outcome(verdict=Verdict.UNAVAILABLE),
    Outcome(verdict=Verdict.HARNESS_ERROR),
)


@pytest.mark.parametrize(("p", "fast"), [(0.0, 3), (0.49, 3), (0.5, 2), (0.8, 2), (1.0, 1), (1.5, 1), (2.0, 0)])
def test_fast_p_is_strict_and_keeps_failures_in_the_denominator(p: float, fast: int) -> None:
    score = fast_p(SIX, p)
    assert (score.fast, score.candidates, score.judged) == (fast, 6, 4)
    assert score.of_all == fast / 6
    assert score.of_judged == fast / 4


def test_a_fast_but_wrong_candidate_is_not_fast() -> None:
    """R31."""
    assert fast_p([Outcome(verdict=Verdict.STALE_OUTPUT, speedup=9.0)], 1.0).fast == 0


def test_a_correct_candidate_without_a_time_counts_at_zero_only() -> None:
    untimed = [Outcome(verdict=Verdict.CORRECT)]
    assert (fast_p(untimed, 0.0).fast, fast_p(untimed, 0.8).fast) == (1, 0)


def test_no_candidates_have_no_fraction() -> None:
    assert math.isnan(fast_p([], 1.0).of_all)
    assert math.isnan(fast_p([Outcome(verdict=Verdict.UNAVAILABLE)], 1.0).of_judged)


def test_geometric_mean_of_reciprocals_is_one() -> None:
    mean = geometric_mean([correct(2.0), correct(0.5), Outcome(verdict=Verdict.CRASHED)])
    assert mean is not None
    assert mean.value == pytest.approx(1.0)
    assert mean.count == 2
    # Two candidates resample to (2, 2), (0.5, 0.5) or a mixture, the extremes with probability 1/4 each.
    assert mean.interval is not None
    assert (mean.interval.low, mean.interval.high) == pytest.approx((0.5, 2.0))


def test_the_interval_follows_the_normal_approximation() -> None:
    """For many log-normal speedups the bootstrap must agree with mean +- 1.96 s / sqrt(n) in logarithms."""
    logs = [math.sin(17.0 * i) for i in range(400)]
    centre = sum(logs) / 400
    deviation = math.sqrt(sum((x - centre) ** 2 for x in logs) / 400)
    mean = geometric_mean([correct(math.exp(x)) for x in logs])
    assert mean is not None and mean.interval is not None
    assert math.log(mean.interval.low) == pytest.approx(centre - 1.96 * deviation / 20, abs=0.004)
    assert math.log(mean.interval.high) == pytest.approx(centre + 1.96 * deviation / 20, abs=0.004)


def test_equal_outcomes_give_equal_intervals() -> None:
    assert geometric_mean(SIX) == geometric_mean(SIX)


def test_one_candidate_has_no_interval_and_none_has_no_mean() -> None:
    one = geometric_mean([correct(1.3)])
    assert one is not None and one.interval is None and one.value == pytest.approx(1.3)
    assert geometric_mean([Outcome(verdict=Verdict.TIMEOUT)]) is None


def test_counts_keep_the_order_of_verdicts() -> None:
    assert list(count_verdicts(SIX).items()) == [
        (Verdict.CORRECT, 3),
        (Verdict.INCORRECT, 1),
        (Verdict.UNAVAILABLE, 1),
        (Verdict.HARNESS_ERROR, 1),
    ]


@pytest.mark.parametrize(
    ("samples", "right", "k", "expected"),
    [(10, 3, 1, 0.3), (5, 2, 2, 0.7), (4, 1, 4, 1.0), (4, 0, 2, 0.0), (200, 1, 100, 0.5), (3, 3, 1, 1.0)],
)
def test_pass_at_k(samples: int, right: int, k: int, expected: float) -> None:
    assert pass_at_k(samples, right, k) == pytest.approx(expected)


@pytest.mark.parametrize(("samples", "right", "k"), [(3, 1, 4), (3, 4, 1), (3, 1, 0), (3, -1, 1)])
def test_pass_at_k_out_of_range(samples: int, right: int, k: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        pass_at_k(samples, right, k)
