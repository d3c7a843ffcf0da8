"""The names of the strategies; apart from what they mean, so that the command line needs nothing else to start."""

from enum import StrEnum


class StrategyName(StrEnum):
    """How the rollouts of a run build on one another."""

    SINGLE = "single"
    """One rollout."""
    BEST_OF = "best-of"
    """Rollouts that know nothing of one another; the best counts."""
    REFINE = "refine"
    """Each rollout starts from the best candidate so far, in a fresh conversation."""
    EVOLVE = "evolve"
    """A population on islands: each rollout starts from a fast parent and one of another approach."""
