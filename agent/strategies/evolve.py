"""The strategy `evolve`: short rollouts breed a population, on islands that seldom exchange anything.

Rollouts go round the islands. On each, of every approach (`agent.strategies.approach`) only the fastest candidate
counts, as in MAP-Elites (Mouret and Clune, arXiv:1504.04909), so that a slower idea is not lost before it was improved.
The first parent is drawn by its place in the order of speed, each half as likely as the next faster one; the second is
the one whose approach differs most from the first's. Islands form a ring (Tanese, 1989).
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from agent.ledger import Attempt
from agent.strategies.approach import Approach, approach_of
from agent.strategies.strategy import Bred, Past, Start, lessons_of, parent_of, right_ones
from runs.origin import Origin, StrategyConfig
from runs.strategy_name import StrategyName

MIGRATION_EVERY = 4
"""Every so many rollouts an island sees the best candidate of the island before it."""


class _Elite(NamedTuple):
    """The fastest candidate of an approach on an island."""

    past: Past
    attempt: Attempt
    approach: Approach


class Evolve:
    """A population on islands."""

    def __init__(self, config: StrategyConfig) -> None:
        self._config = config

    def next_start(self, rollouts: Sequence[Past]) -> Start | None:
        """As of `Strategy`."""
        number = len(rollouts)
        if number >= self._config.rollouts:
            return None
        island = number % self._config.islands
        own = [past for past in rollouts if past.origin.island == island]
        elites = _elites(self._population(rollouts, island, len(own)))
        if not elites:
            return Start(Origin(strategy=StrategyName.EVOLVE, island=island), lessons=lessons_of(own))
        parents = self._parents(elites, number)
        ids = tuple(elite.attempt.candidate for elite in parents)
        origin = Origin(strategy=StrategyName.EVOLVE, parents=ids, island=island)
        return Start(origin, tuple(parent_of(elite.past, elite.attempt) for elite in parents), lessons_of(own))

    def _parents(self, elites: Sequence[_Elite], number: int) -> list[_Elite]:
        """One or two of an island's elites, which come fastest first."""
        draw = random.Random(f"{self._config.seed}/{number}")
        first = draw.choices(elites, [0.5**place for place in range(len(elites))])[0]
        others = [elite for elite in elites if elite is not first]
        # Of equally different ones the fastest, which comes first.
        other = max(others, key=lambda elite: elite.approach.distance(first.approach), default=None)
        return [first] if other is None else [first, other]

    def _population(self, rollouts: Sequence[Past], island: int, started: int) -> list[Bred]:
        """An island's right candidates, and where it is time the best one of the island before; fastest first."""
        right = right_ones(rollouts)
        before = (island - 1) % self._config.islands
        migrates = before != island and started % MIGRATION_EVERY == MIGRATION_EVERY - 1
        migrant = next((bred for bred in right if bred[0].origin.island == before), None) if migrates else None
        return [bred for bred in right if bred[0].origin.island == island or bred is migrant]


def _elites(candidates: Sequence[Bred]) -> list[_Elite]:
    """Of candidates that come fastest first, the first of each approach."""
    by_approach: dict[Approach, _Elite] = {}
    for past, attempt in candidates:
        approach = approach_of(past.text_of(attempt.candidate))
        by_approach.setdefault(approach, _Elite(past, attempt, approach))
    return list(by_approach.values())
