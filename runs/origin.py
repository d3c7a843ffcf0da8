"""Where the rollouts of a run come from: the strategy of the run, and what each rollout started from."""

from pydantic import Field

from runs.strategy_name import StrategyName
from tasks.record import Record


class StrategyConfig(Record):
    """A strategy with its parameters, as it stands in `run.json`."""

    name: StrategyName
    rollouts: int = Field(ge=1)
    """The most that are started."""
    parallel: int = Field(default=1, ge=1)
    """How many go on at once."""
    islands: int = Field(default=2, ge=1)
    """Only for `evolve`."""
    seed: int = 0
    """Of what a strategy draws at random."""


class Origin(Record):
    """What a rollout started from."""

    strategy: StrategyName
    parents: tuple[str, ...] = ()
    """The ids of the candidates that its opening shows, the one to work on first; empty for a fresh start."""
    island: int | None = None
    """Counted from 0; None where there are no islands."""
