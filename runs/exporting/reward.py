"""What a rollout was worth: the verdict and the speedup of what it submitted, else of its best candidate."""

from typing import Literal

from runs.summary import Outcome, RolloutSummary
from tasks.record import Record
from tools.results import Interval


class Reward(Record):
    """The worth of a rollout, as the judge here found it; nothing that an imported file claims goes into it."""

    of: Literal["submitted", "best"]
    """Whether it is what was submitted, or, where nothing was, the fastest candidate that no tool found wrong."""
    verdict: str
    speedup: float | None
    """Over the fastest baseline; None unless it was measured."""
    speedup_interval: Interval | None


def reward_of(summary: RolloutSummary) -> Reward | None:
    """The worth of a rollout; None where nothing was submitted and nothing was timed."""
    if summary.submitted is not None:
        return _reward("submitted", summary.submitted)
    return None if summary.best is None else _reward("best", summary.best.outcome)


def _reward(of: Literal["submitted", "best"], outcome: Outcome) -> Reward:
    return Reward(of=of, verdict=outcome.verdict, speedup=outcome.speedup, speedup_interval=outcome.speedup_interval)
