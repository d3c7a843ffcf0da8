"""Whose code takes what share of a call's time, from looks at random moments, and whether it is the candidate's own.

A look counts for one origin only: a library's where any thread is in one, so that threads that spin in the candidate's
own code beside it hide nothing.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tools.code_origins import Origin, Place
from tools.results import CodeShares

ALLOWED_SHARE = 0.05
"""Of the time, for what no honest candidate does at all: none of the suite's was seen in a library in any look."""
LUCK = 0.001
"""A candidate whose share is as allowed is accused once in so many measurements, at most."""
_FOREIGN = (Origin.GENERATED, Origin.LIBRARY, Origin.COMPUTING)
_PRECEDENCE = (*_FOREIGN, Origin.PYTORCH, Origin.OWN, Origin.RUNTIME)
_SHOWN = 3


@dataclass
class Tally:
    """Looks at one candidate."""

    looks: Counter[Origin] = field(default_factory=Counter)
    """By what they count for; those in which nothing computed are not in it."""
    names: Counter[str] = field(default_factory=Counter)
    """Where foreign code was, by how many looks it was in."""
    hidden: int = 0
    """Looks that were refused."""

    @classmethod
    def of(cls, tallies: "Iterable[Tally]") -> "Tally":
        """All of them together."""
        whole = cls()
        for each in tallies:
            whole.looks += each.looks
            whole.names += each.names
            whole.hidden += each.hidden
        return whole

    def add(self, places: Iterable[Place], *, hidden: bool = False) -> bool:
        """Count one look; False where it shows nothing."""
        seen = tuple(places)
        found = next((origin for origin in _PRECEDENCE if any(place.origin is origin for place in seen)), None)
        if hidden:
            self.hidden += 1
        elif found is not None:
            self.looks[found] += 1
            self.names.update({place.name for place in seen if place.origin in _FOREIGN})
        return hidden or found is not None

    @property
    def total(self) -> int:
        """How many looks showed something."""
        return self.looks.total() + self.hidden

    @property
    def foreign(self) -> int:
        """How many of them are to be explained."""
        return sum(self.looks[origin] for origin in _FOREIGN) + self.hidden

    @property
    def accuses(self) -> bool:
        """Whether the foreign share is above what is allowed, and not by luck."""
        return at_least(self.foreign, self.total, ALLOWED_SHARE) <= LUCK

    @property
    def unclear(self) -> bool:
        """Whether more looks may tell more."""
        return self.foreign > 0 and not self.accuses

    def explained(self) -> str:
        """What was seen, for a message."""
        if self.hidden > self.foreign - self.hidden:
            return f"the worker did not let itself be looked at in {self.hidden} of {self.total} looks"
        named = ", ".join(f"{name} ({count}x)" for name, count in self.names.most_common(_SHOWN))
        return (
            f"in {self.foreign} of {self.total} looks within timed calls other code than the candidate's ran: {named}"
        )

    def shares(self) -> CodeShares | None:
        """The figures for a result; None where nothing was seen."""
        if not self.total:
            return None
        share = {origin: self.looks[origin] / self.total for origin in Origin}
        return CodeShares(
            looks=self.total,
            own=share[Origin.OWN],
            runtime=share[Origin.RUNTIME],
            pytorch=share[Origin.PYTORCH],
            library=self.foreign / self.total,
        )


def at_least(hits: int, trials: int, share: float) -> float:
    """How likely at least so many of independent trials are hits, each being one with this probability."""
    return math.fsum(
        math.comb(trials, count) * share**count * (1.0 - share) ** (trials - count) for count in range(hits, trials + 1)
    )
