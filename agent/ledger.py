"""The ledger of a rollout: every candidate that was tried, what came of it, the best of them, and the last profile."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from runs.arguments import parsed_arguments
from runs.events import Event, ModelReplied, ToolReturned
from runs.summary import CallRow, Outcome, best_row, call_row, faulty
from tools.candidate import Candidate

IDEA_LENGTH = 120
"""Characters of an idea that are kept."""


@dataclass(frozen=True)
class Attempt:
    """One candidate and what is known of it by now."""

    candidate: str
    """Its id."""
    turn: int
    """In which it was first compiled."""
    idea: str
    """One line: what the model said of it, else what its docstring says; empty where neither says anything."""
    outcome: Outcome
    """Of a wrong one, what it was found to be; of a timed one, its best measurement; else the last answer."""


class Ledger:
    """Built from a rollout's events, one after the other; the same events always make the same ledger."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._attempts: dict[str, Attempt] = {}
        self._rows: list[CallRow] = []
        self._reply: ModelReplied | None = None
        self._profile: ToolReturned | None = None
        for event in events:
            self.see(event)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """All candidates, in the order in which they were first compiled."""
        return tuple(self._attempts.values())

    @property
    def best(self) -> Attempt | None:
        """The candidate with the highest lower bound of the speedup among those that no tool has found wrong."""
        row = best_row(self._rows)
        return None if row is None or row.candidate is None else self._attempts.get(row.candidate)

    @property
    def last_profile(self) -> str:
        """What the last profile said, with the id of its candidate; empty where there was none."""
        if self._profile is None:
            return ""
        return f"candidate {self._profile.reply.candidate}:\n{self._profile.reply.text}"

    def see(self, event: Event) -> None:
        """Take in the next event."""
        if isinstance(event, ModelReplied):
            self._reply = event
        elif isinstance(event, ToolReturned) and event.executed and event.reply.candidate is not None:
            row = call_row(event)
            if row.outcome.verdict == "refused":
                return
            self._rows.append(row)
            self._note(event, event.reply.candidate, row.outcome)
            if event.tool == "profile" and not faulty(row.outcome):
                self._profile = event

    def _note(self, event: ToolReturned, candidate: str, outcome: Outcome) -> None:
        known = self._attempts.get(candidate)
        if known is None:
            self._attempts[candidate] = Attempt(candidate, event.turn, self._idea(event), outcome)
        else:
            self._attempts[candidate] = replace(known, outcome=_later(known.outcome, outcome))

    def _idea(self, event: ToolReturned) -> str:
        if self._reply is None:
            return ""
        said = self._reply.text or _docstring(self._reply, event.call_id)
        line = next((stripped for line in said.splitlines() if (stripped := line.strip(" #*\t"))), "")
        return line if len(line) <= IDEA_LENGTH else line[: IDEA_LENGTH - 3].rstrip() + "..."


def _later(known: Outcome, new: Outcome) -> Outcome:
    """What to keep of two answers about one candidate."""
    if faulty(known) or not (faulty(new) or new.verdict == "correct"):
        return known
    if faulty(new) or known.speedup_interval is None:
        return new
    if new.speedup_interval is None:
        return known
    return max(known, new, key=_lower_bound)


def _lower_bound(outcome: Outcome) -> float:
    return 0.0 if outcome.speedup_interval is None else outcome.speedup_interval.low


def _docstring(reply: ModelReplied, call_id: str) -> str:
    """The docstring of the module that a call brought."""
    arguments = next((call.arguments for call in reply.tool_calls if call.id == call_id), "")
    code = (parsed_arguments(arguments) or {}).get("kernel_code")
    return Candidate(code).docstring if isinstance(code, str) else ""
