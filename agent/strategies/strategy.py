"""What a strategy is: a pure function from the rollouts so far to what the next one starts from."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from agent.ledger import Attempt, Ledger
from runs.origin import Origin
from runs.summary import faulty

MOST_LESSONS = 12
"""Attempts that an opening lists."""


@dataclass(frozen=True)
class Past:
    """One rollout so far, as its transcript says; it may still go on."""

    name: str
    origin: Origin
    ledger: Ledger
    ended: bool
    text_of: Callable[[str], str]
    """The text of a candidate of this rollout, by its id."""
    profiles: Mapping[str, str] = field(default_factory=dict)
    """What `profile` last said about a candidate, by its id."""

    @property
    def right(self) -> tuple[Attempt, ...]:
        """The candidates that were timed and that no tool has found wrong."""
        return tuple(
            each for each in self.ledger.attempts if each.outcome.speedup_interval and not faulty(each.outcome)
        )


class Parent(NamedTuple):
    """A candidate that an opening shows."""

    candidate: str
    text: str
    median_ns: float
    speedup: float
    profile: str | None


class Start(NamedTuple):
    """What a rollout starts from."""

    origin: Origin
    parents: tuple[Parent, ...] = ()
    """The one to work on first, then one to take ideas from."""
    lessons: tuple[Attempt, ...] = ()
    """Earlier attempts, oldest first."""


class Strategy(Protocol):
    """Says what the next rollout starts from; asked again whenever a rollout may be started.

    It keeps nothing between calls: what it needs is in the transcripts, so a killed run goes on by asking again.
    """

    def next_start(self, rollouts: Sequence[Past]) -> Start | None:
        """The start of the next rollout; None where none is to be started, or none until another has ended.

        Args:
            rollouts: all that were started, in the order of their starts.
        """
        ...


def best_of(rollouts: Iterable[Past]) -> tuple[Past, Attempt] | None:
    """The best candidate of some rollouts by the lower bound of its speedup, with the rollout it is from."""
    found = [(past, attempt) for past in rollouts for attempt in past.right]
    return max(found, key=lambda pair: bound(pair[1]), default=None)


def bound(attempt: Attempt) -> float:
    """The lower bound of a right attempt's speedup."""
    interval = attempt.outcome.speedup_interval
    assert interval is not None
    return interval.low


def parent_of(past: Past, attempt: Attempt) -> Parent:
    """A right attempt of a rollout as a parent."""
    candidate, found = attempt.candidate, attempt.outcome
    assert found.median_ns is not None and found.speedup is not None
    return Parent(candidate, past.text_of(candidate), found.median_ns, found.speedup, past.profiles.get(candidate))


def lessons_of(rollouts: Iterable[Past]) -> tuple[Attempt, ...]:
    """The last attempts of some rollouts, each text once."""
    by_candidate: dict[str, Attempt] = {}
    for past in rollouts:
        for attempt in past.ledger.attempts:
            by_candidate.pop(attempt.candidate, None)
            by_candidate[attempt.candidate] = attempt
    return tuple(by_candidate.values())[-MOST_LESSONS:]
