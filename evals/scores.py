"""Scores of many candidates: fast_p, the geometric mean of speedups, counts by verdict, pass@k. Pure functions."""

import math
from collections.abc import Sequence

from tasks.record import Record
from tools.results import Interval
from tools.verdict import Verdict, culprit

FAST_P_THRESHOLDS = (0.0, 0.8, 1.0, 1.5, 2.0)

_RESAMPLES = 10_000
_SEED = 0


class Outcome(Record):
    """What a score needs to know of one candidate."""

    verdict: Verdict
    speedup: float | None = None
    """Over the fastest baseline; None unless it was measured."""

    @property
    def judged(self) -> bool:
        """Whether the verdict is about the candidate, not about the machine or the harness."""
        return culprit(self.verdict) in ("nobody", "candidate")


class FastP(Record):
    """How many candidates are correct and faster than `p` times the fastest baseline, with both denominators."""

    p: float
    fast: int
    candidates: int
    """All candidates."""
    judged: int
    """Those whose verdict is not the machine's or the harness's fault."""

    @property
    def of_all(self) -> float:
        """The fraction of all candidates; NaN for none."""
        return self.fast / self.candidates if self.candidates else math.nan

    @property
    def of_judged(self) -> float:
        """The fraction of the judged candidates; NaN for none."""
        return self.fast / self.judged if self.judged else math.nan


class GeometricMean(Record):
    """The geometric mean of the correct candidates' speedups."""

    value: float
    interval: Interval | None
    """Percentile bootstrap over candidates; None for fewer than two. It shows how candidates differ, not noise."""
    count: int


def fast_p(outcomes: Sequence[Outcome], p: float) -> FastP:
    """The fraction of all candidates that are correct and have a speedup above `p`.

    As KernelBench defines it (Ouyang et al. 2025, "KernelBench: Can LLMs Write Efficient GPU Kernels?"): wrong and slow
    candidates both stay in the denominator, and fast_0 is the fraction that is correct. Unlike there, a candidate that
    the machine or the harness failed is also left out of a second denominator.
    """
    correct = [outcome for outcome in outcomes if outcome.verdict is Verdict.CORRECT]
    fast = [outcome for outcome in correct if p <= 0 or (outcome.speedup is not None and outcome.speedup > p)]
    return FastP(p=p, fast=len(fast), candidates=len(outcomes), judged=sum(1 for outcome in outcomes if outcome.judged))


def geometric_mean(outcomes: Sequence[Outcome]) -> GeometricMean | None:
    """The geometric mean of speedups over the correct candidates, with a 95 % interval; None where none is correct.

    The interval is the percentile bootstrap of 10,000 resamples of the candidates with a fixed seed, so equal outcomes
    give equal intervals. Candidates that are not correct do not count here: read it beside fast_p, never alone.
    """
    speedups = [o.speedup for o in outcomes if o.verdict is Verdict.CORRECT and o.speedup is not None]
    if not speedups:
        return None
    logs = [math.log(speedup) for speedup in speedups]
    return GeometricMean(
        value=math.exp(math.fsum(logs) / len(logs)),
        interval=_bootstrap(logs) if len(logs) > 1 else None,
        count=len(logs),
    )


def _bootstrap(logs: Sequence[float]) -> Interval:
    """The percentile interval of exp(mean) over resamples of `logs`."""
    # Importing NumPy takes a fifth of the time of `kernelwright --help`.
    import numpy as np

    values = np.asarray(logs, dtype=np.float64)
    random = np.random.default_rng(_SEED)
    means = [values[random.integers(0, len(values), len(values))].mean() for _ in range(_RESAMPLES)]
    low, high = np.exp(np.percentile(means, (2.5, 97.5)))
    return Interval(low=float(low), high=float(high))


def count_verdicts(outcomes: Sequence[Outcome]) -> dict[Verdict, int]:
    """How many candidates got each verdict that occurs, in the order in which `Verdict` lists them."""
    counts = {verdict: sum(1 for outcome in outcomes if outcome.verdict is verdict) for verdict in Verdict}
    return {verdict: count for verdict, count in counts.items() if count}


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The probability that at least one of `k` samples is correct, estimated without bias from `samples` of them.

    1 - C(samples - correct, k) / C(samples, k), from Chen et al. 2021, "Evaluating Large Language Models Trained on
    Code". It supposes samples drawn independently from one model on one task.

    Raises:
        ValueError: not 1 <= k <= samples, or not 0 <= correct <= samples.
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {correct} correct: k or correct is out of range")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)
