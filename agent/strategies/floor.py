"""When a run has come near enough to the floor that more rollouts would hardly find anything."""

from collections.abc import Sequence

from agent.strategies.strategy import Past, right_ones

NEAR = 0.9
"""The share of the roofline's rate at which a run starts no further rollout: at most a tenth is left to gain."""


def is_near(rollouts: Sequence[Past], floor_ns: float | None) -> bool:
    """Whether the best candidate's time is at most the floor over `NEAR`; never where the floor is not known."""
    right = right_ones(rollouts)
    if floor_ns is None or not right:
        return False
    median_ns = right[0][1].outcome.median_ns
    return median_ns is not None and median_ns <= floor_ns / NEAR
