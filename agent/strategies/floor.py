"""When a run has come near enough to the floor that more rollouts would hardly find anything."""

from collections.abc import Iterable

from agent.strategies.strategy import Past, best_of

NEAR = 0.9
"""The share of the roofline's rate at which a run starts no further rollout: at most a tenth is left to gain."""


def is_near(rollouts: Iterable[Past], floor_ns: float | None) -> bool:
    """Whether the best candidate's time is at most the floor over `NEAR`; never where the floor is not known."""
    best = best_of(rollouts)
    if floor_ns is None or best is None:
        return False
    median_ns = best[1].outcome.median_ns
    return median_ns is not None and median_ns <= floor_ns / NEAR
