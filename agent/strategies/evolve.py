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
from agent.strategies.strategy import Past, Start, best_of, bound, lessons_of, parent_of
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
        bred = [(past, attempt) for past in own for attempt in past.right]
        elites = _elites([*bred, *self._migrants(rollouts, island, len(own))])
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

    def _migrants(self, rollouts: Sequence[Past], island: int, started: int) -> list[tuple[Past, Attempt]]:
        """The best candidate of the island before, where it is time and there is another island."""
        before = (island - 1) % self._config.islands
        if before == island or started % MIGRATION_EVERY != MIGRATION_EVERY - 1:
            return []
        best = best_of(past for past in rollouts if past.origin.island == before)
        return [] if best is None else [best]


def _elites(candidates: Sequence[tuple[Past, Attempt]]) -> list[_Elite]:
    """The fastest candidate of each approach, fastest first."""
    by_approach: dict[Approach, _Elite] = {}
    for past, attempt in sorted(candidates, key=lambda pair: bound(pair[1]), reverse=True):
        approach = approach_of(past.text_of(attempt.candidate))
        by_approach.setdefault(approach, _Elite(past, attempt, approach))
    return list(by_approach.values())
