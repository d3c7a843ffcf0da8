"""How fast is it: times a candidate against a baseline in interleaved blocks, and checks outputs of timed calls."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tasks.errors import HarnessError
from tools.comparison import LimitsOf
from tools.statistics import Blocks
from tools.timer import SLOW_NS, Timer, warm_up
from tools.workers import CandidateFault

MIN_ROUNDS, MAX_ROUNDS = 6, 24
"""A round is four blocks: baseline, candidate, candidate, baseline."""
ROUND_BUDGET_S = 2.0
"""About how long all rounds together may take beyond the fewest."""
SLOW_ROUNDS = 3
"""Where one call takes longer than `SLOW_NS`, so many rounds of single calls tell enough."""
MAX_BLOCK = 3
"""A block is one to this many calls, drawn by the judge."""
PLACEMENT_NS = 300.0
"""Two workers with the same kernel may differ by this much a call on a GPU, in a way that no repetition within them
averages out: where their memory happens to lie. Measured on an H200 with a 22 us kernel (benchmarks/README.md): ratios
of 0.988 to 1.000 that turn round when the two swap roles."""
FULL_CHECKS = 4
"""How many timed calls' outputs are compared with the float64 oracle; every call's is compared with PyTorch's."""
_STANDARD_ERROR = 1.858
"""Of a median of n normal samples, times sqrt(n), over their median absolute deviation: 1.4826 * sqrt(pi / 2)."""


@dataclass(frozen=True)
class Samples:
    """The raw result of an interleaved measurement."""

    candidate: Blocks
    baseline: Blocks
    wall_excess_ns: float
    """Median over calls of (wall - device) of the candidate, less the same of the baseline."""
    wall_noise_ns: float
    """Standard error of the excess where both sides are as noisy as the baseline, which makes no noise on purpose."""


@contextlib.contextmanager
def _blaming_the_baseline() -> Iterator[None]:
    """A baseline that fails is our fault, never the candidate's that is measured beside it."""
    try:
        yield
    except CandidateFault as fault:
        raise HarnessError(f"the baseline failed during a measurement: {fault.message}") from fault


def _settle(timer: Timer, limits_of: LimitsOf) -> None:
    """Warm up, check one timed call fully, and leave the timer with no wall times of these calls."""
    warm_up(timer)
    timer.check_last(limits_of)
    timer.call()
    timer.check_last_quickly()
    timer.wall_over_device_ns.clear()


def _block(timer: Timer, calls: int) -> tuple[int, ...]:
    """Time some calls, each followed by the quick check of its output.

    Baselines are checked as well, so that both sides find the machine alike.
    """
    samples = []
    for _ in range(calls):
        samples.append(timer.call())
        timer.check_last_quickly()
    return tuple(samples)


def interleave(candidate: Timer, baseline: Timer) -> Samples:
    """Measure in rounds of baseline, candidate, candidate, baseline, checking the output of every call.

    Raises:
        CandidateFault: an output of a timed call is wrong, or the candidate's worker failed.
        HarnessError: the same of the baseline.
    """
    limits_of = LimitsOf(candidate.session.precision, 0.0)
    with _blaming_the_baseline():
        _settle(baseline, limits_of)
    _settle(candidate, limits_of)
    draws = candidate.session.draws
    slow = candidate.last_call_ns > SLOW_NS
    longest = 1 if slow else MAX_BLOCK
    # A round holds two blocks a side, of (1 + longest) / 2 calls on average.
    cost_s = (candidate.last_checked_ns + baseline.last_checked_ns) * (1 + longest) / 1e9
    least = SLOW_ROUNDS if slow else MIN_ROUNDS
    rounds = int(min(MAX_ROUNDS, max(least, ROUND_BUDGET_S / cost_s)))
    checked = {draws.integer(0, 2 * rounds - 1) for _ in range(FULL_CHECKS)}
    ours: list[tuple[int, ...]] = []
    theirs: list[tuple[int, ...]] = []
    for _ in range(rounds):
        for side in ("baseline", "candidate", "candidate", "baseline"):
            calls = draws.integer(1, longest)
            if side == "candidate":
                ours.append(_block(candidate, calls))
                if len(ours) - 1 in checked:
                    candidate.check_last(limits_of)
            else:
                with _blaming_the_baseline():
                    theirs.append(_block(baseline, calls))
    over = torch.tensor(candidate.wall_over_device_ns, dtype=torch.float64)
    base = torch.tensor(baseline.wall_over_device_ns, dtype=torch.float64)
    return Samples(
        candidate=tuple(ours),
        baseline=tuple(theirs),
        wall_excess_ns=float(over.median() - base.median()),
        wall_noise_ns=_STANDARD_ERROR
        * float((base - base.median()).abs().median())
        * math.sqrt(1 / over.numel() + 1 / base.numel()),
    )
