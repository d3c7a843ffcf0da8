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
    text_of: Callable[[str], str]
    """The text of a candidate of this rollout, by its id."""
    profiles: Mapping[str, str] = field(default_factory=dict)
    """What `profile` last said about a candidate, by its id."""


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


Bred = tuple[Past, Attempt]
"""A candidate with the rollout that it is from."""


def right_ones(rollouts: Sequence[Past]) -> list[Bred]:
    """The candidates that were timed and that no tool has found wrong, in whichever rollout; fastest first.

    How fast is the lower bound of the speedup: one that is high because the measurement was disturbed has a low one.
    """
    wrong = {each.candidate for past in rollouts for each in past.ledger.attempts if faulty(each.outcome)}
    found = [
        (past, each)
        for past in rollouts
        for each in past.ledger.attempts
        if each.outcome.speedup_interval is not None and each.candidate not in wrong
    ]
    return sorted(found, key=lambda pair: _bound(pair[1]), reverse=True)


def _bound(attempt: Attempt) -> float:
    interval = attempt.outcome.speedup_interval
    return 0.0 if interval is None else interval.low


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
