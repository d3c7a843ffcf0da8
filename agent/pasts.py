"""The rollouts of a run as its strategy sees them, read from their transcripts."""

from collections.abc import Sequence

from agent.ledger import Ledger
from agent.strategies.strategy import Past
from runs.events import Event, RolloutStarted, ToolReturned
from runs.origin import Origin
from runs.store import RunDirectory
from runs.strategy_name import StrategyName
from runs.summary import started

UNKNOWN = Origin(strategy=StrategyName.BEST_OF)
"""Of rollouts from before origins were written down: they knew nothing of one another."""


class Pasts:
    """Reads what has happened so far; a transcript is read again only when it has grown."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._read: dict[str, tuple[int, Past]] = {}
        """What was read, with how many bytes the transcript had before."""

    def of(self, begun: Sequence[RolloutStarted]) -> tuple[Past, ...]:
        """The rollouts that were begun in this process or before, in the order of their starts.

        Args:
            begun: those that may have no transcript yet.
        """
        waiting = {each.rollout: each for each in begun}
        names = sorted({*self._run.rollouts(), *waiting}, key=lambda name: (len(name), name))
        return tuple(past for name in names if (past := self._past(name, waiting.get(name))) is not None)

    def _past(self, name: str, begun: RolloutStarted | None) -> Past | None:
        """None where a process was killed before the rollout's first event was whole: it has not begun."""
        path = self._run.transcript(name)
        size_bytes = path.stat().st_size if path.exists() else 0
        if name in self._read and self._read[name][0] == size_bytes:
            return self._read[name][1]
        events: Sequence[Event] = self._run.events(name) if size_bytes else ()
        if not events:
            if begun is None:
                return None
            events = (begun,)
        past = past_of(name, events, self._run)
        self._read[name] = size_bytes, past
        return past


def past_of(name: str, events: Sequence[Event], run: RunDirectory) -> Past:
    """One rollout from its events."""
    return Past(
        name=name,
        origin=started(events).origin or UNKNOWN,
        ledger=Ledger(events),
        text_of=run.candidate_text,
        profiles={
            event.reply.candidate: event.reply.text
            for event in events
            if isinstance(event, ToolReturned) and event.tool == "profile" and event.reply.candidate is not None
        },
    )
