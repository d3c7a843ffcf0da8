"""The strategy `refine`: each rollout starts from the best candidate so far, in a fresh conversation.

A long conversation costs more with every turn and holds on to its first idea; a fresh one has the best text, its
profile and what was learnt, and nothing else.
"""

from collections.abc import Sequence

from agent.strategies.strategy import Past, Start, lessons_of, parent_of, right_ones
from runs.origin import Origin, StrategyConfig
from runs.strategy_name import StrategyName


class Refine:
    """Fresh starts until something right was timed; then from the best of all rollouts, those that go on included."""

    def __init__(self, config: StrategyConfig) -> None:
        self._config = config

    def next_start(self, rollouts: Sequence[Past]) -> Start | None:
        """As of `Strategy`."""
        if len(rollouts) >= self._config.rollouts:
            return None
        right = right_ones(rollouts)
        if not right:
            return Start(Origin(strategy=StrategyName.REFINE), lessons=lessons_of(rollouts))
        parent = parent_of(*right[0])
        origin = Origin(strategy=StrategyName.REFINE, parents=(parent.candidate,))
        return Start(origin, (parent,), lessons_of(rollouts))
