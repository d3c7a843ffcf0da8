"""The strategies by name, and the configuration that the caller's options mean."""

from collections.abc import Callable

from agent.strategies.best_of import BestOf
from agent.strategies.evolve import Evolve
from agent.strategies.refine import Refine
from agent.strategies.single import Single
from agent.strategies.strategy import Strategy
from runs.origin import StrategyConfig
from runs.strategy_name import StrategyName
from tasks.errors import UsageError

_BY_NAME: dict[StrategyName, Callable[[StrategyConfig], Strategy]] = {
    StrategyName.SINGLE: Single,
    StrategyName.BEST_OF: BestOf,
    StrategyName.REFINE: Refine,
    StrategyName.EVOLVE: Evolve,
}
_ROLLOUTS = {StrategyName.SINGLE: 1, StrategyName.BEST_OF: 4, StrategyName.REFINE: 4, StrategyName.EVOLVE: 12}
"""Where the caller does not say how many."""


def strategy_of(config: StrategyConfig) -> Strategy:
    """The strategy that a configuration means."""
    return _BY_NAME[config.name](config)


def configured(name: StrategyName | None, rollouts: int | None, parallel: int) -> StrategyConfig:
    """The strategy that options mean; raises UsageError for a single rollout that is more than one."""
    if name is None:
        name = StrategyName.SINGLE if rollouts in (None, 1) else StrategyName.BEST_OF
    count = _ROLLOUTS[name] if rollouts is None else rollouts
    if name is StrategyName.SINGLE and count > 1:
        raise UsageError(
            f"The strategy single has one rollout, and --rollouts asks for {count}; choose --strategy best-of, refine "
            "or evolve."
        )
    return StrategyConfig(name=name, rollouts=count, parallel=parallel)
