"""The strategy `best-of`: rollouts that know nothing of one another."""

from collections.abc import Sequence

from agent.strategies.strategy import Past, Start
from runs.origin import Origin, StrategyConfig
from runs.strategy_name import StrategyName


class BestOf:
    """As many fresh rollouts as there may be, all at once if that many may go on."""

    def __init__(self, config: StrategyConfig) -> None:
        self._config = config

    def next_start(self, rollouts: Sequence[Past]) -> Start | None:
        """As of `Strategy`."""
        if len(rollouts) >= self._config.rollouts:
            return None
        return Start(Origin(strategy=StrategyName.BEST_OF))
