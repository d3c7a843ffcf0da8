"""The strategies by name."""

from collections.abc import Callable

from agent.strategies.best_of import BestOf
from agent.strategies.evolve import Evolve
from agent.strategies.refine import Refine
from agent.strategies.single import Single
from agent.strategies.strategy import Strategy
from runs.origin import StrategyConfig, StrategyName

_BY_NAME: dict[StrategyName, Callable[[StrategyConfig], Strategy]] = {
    StrategyName.SINGLE: Single,
    StrategyName.BEST_OF: BestOf,
    StrategyName.REFINE: Refine,
    StrategyName.EVOLVE: Evolve,
}


def strategy_of(config: StrategyConfig) -> Strategy:
    """The strategy that a configuration means."""
    return _BY_NAME[config.name](config)
