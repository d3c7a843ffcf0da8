"""The strategy `single`: one rollout."""

from collections.abc import Sequence

from agent.strategies.strategy import Past, Start
from runs.origin import Origin, StrategyConfig
from runs.strategy_name import StrategyName


class Single:
    """One rollout, whatever `rollouts` says."""

    def __init__(self, config: StrategyConfig) -> None:
        del config

    def next_start(self, rollouts: Sequence[Past]) -> Start | None:
        """As of `Strategy`."""
        return None if rollouts else Start(Origin(strategy=StrategyName.SINGLE))
