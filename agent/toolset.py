"""All tools of a rollout: those of a toolbox, and two that need no machine: `read_guide` and `diff_best`."""

import difflib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from agent.guides.shelf import guide_titles, read_guide
from agent.ledger import Attempt, Ledger
from runs.events import Event, RolloutStarted, ToolReturned
from runs.terminal import duration, speedup
from tasks.record import Record
from tools import toolbox
from tools.results import ToolReply
from tools.text_results import Compared, GuideRead
from tools.toolbox import Tools, definition, problems, refuse, shown

DIFF_LINES = 200
ID_SHOWN = 12


class ReadGuideArguments(Record):
    """Read one of our short guides on making convolutions fast: measured advice, and code. Without a name: a list."""

    name: str | None = None
    """The name of a guide, as in the list."""


class DiffBestArguments(Record):
    """Compare the text of a candidate with that of the best one so far, line by line, with the figures of both."""

    candidate: str | None = None
    """The id (or its first characters) of a candidate compiled before; without it, the one compiled last."""


_OWN: dict[str, type[Record]] = {"read_guide": ReadGuideArguments, "diff_best": DiffBestArguments}


class _Known(NamedTuple):
    """A candidate and what is known of it; nothing of one that the rollout began with."""

    id: str
    attempt: Attempt | None

    def __str__(self) -> str:
        if self.attempt is None:
            return f"{self.id[:ID_SHOWN]} (this conversation began with it)"
        outcome = self.attempt.outcome
        figures = ", ".join(part for part in (duration(outcome.median_ns), speedup(outcome)) if part)
        return f"{self.id[:ID_SHOWN]} ({outcome.verdict}{', ' if figures else ''}{figures})"


class Toolset:
    """The tools of one rollout, as `tools.toolbox.Tools`."""

    def __init__(self, toolbox: Tools, history: Callable[[], Sequence[Event]]) -> None:
        """`history` reads the rollout's events up to now, so that what is best is known after a resumption too."""
        self._toolbox = toolbox
        self._history = history

    def definitions(self) -> list[dict[str, object]]:
        """The tools in the JSON form of Chat Completions `tools`."""
        return [*self._toolbox.definitions(), *_own_definitions()]

    def candidate_text(self, candidate_id: str) -> str:
        """The text of a candidate seen in this toolset; raises KeyError for an id it has not seen."""
        return self._toolbox.candidate_text(candidate_id)

    def remember(self, text: str) -> None:
        """Know a candidate compiled earlier, in a conversation that goes on here; the last one told is the latest."""
        self._toolbox.remember(text)

    def call(self, name: str, arguments: str) -> ToolReply:
        """Carry out one call; `arguments` is the JSON text the model wrote. Never raises for the model's mistakes."""
        kind = _OWN.get(name)
        if name not in tool_names():
            return refuse(f"there is no tool {name!r}; the tools are {', '.join(tool_names())}.")
        if kind is None:
            return self._toolbox.call(name, arguments)
        try:
            parsed = kind.model_validate_json(arguments or "{}")
        except ValidationError as error:
            return refuse(f"the arguments of {name} do not fit: {problems(error)}. Send the call again, corrected.")
        if isinstance(parsed, ReadGuideArguments):
            return _read(parsed.name)
        assert isinstance(parsed, DiffBestArguments)
        return self._diff(parsed.candidate)

    def _diff(self, wanted: str | None) -> ToolReply:
        events = self._history()
        ledger = Ledger(events)
        best = _best(ledger, events)
        if best is None:
            return refuse("no candidate has been timed yet, so none is the best; call benchmark on one that is right.")
        found = _find(wanted, ledger, events)
        if isinstance(found, str):
            return refuse(found)
        if found.id == best.id:
            return refuse(f"candidate {found} is the best so far itself; name another one, or compile one.")
        old, new = (self.candidate_text(each.id).splitlines() for each in (best, found))
        lines = list(
            difflib.unified_diff(old, new, f"best {best.id[:ID_SHOWN]}", found.id[:ID_SHOWN], n=2, lineterm="")
        )
        more = len(lines) - DIFF_LINES
        shown = [*lines[:DIFF_LINES], *([f"and {more} more lines"] if more > 0 else [])]
        heading = f"candidate {found} against the best so far, {best}:"
        return ToolReply(
            text="\n".join([heading, *shown]), result=Compared(candidate=found.id, best=best.id), candidate=found.id
        )


def definitions() -> list[dict[str, object]]:
    """The tools of every toolset, in the JSON form of Chat Completions `tools`."""
    return [*toolbox.definitions(), *_own_definitions()]


def tool_names() -> tuple[str, ...]:
    """The names of all of them."""
    return (*toolbox.tool_names(), *_OWN)


def _own_definitions() -> list[dict[str, object]]:
    return [definition(name, kind) for name, kind in _OWN.items()]


def _best(ledger: Ledger, events: Sequence[Event]) -> _Known | None:
    """The best one of this rollout; before there is any, the first of those that it began with."""
    if ledger.best is not None:
        return _Known(ledger.best.candidate, ledger.best)
    first = events[0] if events else None
    origin = first.origin if isinstance(first, RolloutStarted) else None
    return None if origin is None or not origin.parents else _Known(origin.parents[0], None)


def _find(wanted: str | None, ledger: Ledger, events: Sequence[Event]) -> _Known | str:
    """The candidate that an id or its beginning means; or why there is none."""
    attempts = {attempt.candidate: attempt for attempt in ledger.attempts}
    if wanted is None:
        compiled = [e for e in events if isinstance(e, ToolReturned) and e.tool == "compile_kernel"]
        latest = next((e.reply.candidate for e in reversed(compiled) if e.reply.candidate is not None), None)
        return (
            "nothing has been compiled yet; call compile_kernel first."
            if latest is None
            else _Known(latest, attempts.get(latest))
        )
    found = [attempt for key, attempt in attempts.items() if key.startswith(wanted)]
    if len(found) == 1:
        return _Known(found[0].candidate, found[0])
    known = ", ".join(key[:ID_SHOWN] for key in attempts) or "none"
    problem = "no candidate" if not found else f"{len(found)} candidates"
    return f"{problem} with the id {shown(wanted)}; compiled so far: {known}."


def _read(name: str | None) -> ToolReply:
    titles = guide_titles()
    listed = "\n".join(f"- {each}: {title}" for each, title in titles.items())
    if name is None:
        return ToolReply(text=f"guides:\n{listed}", result=GuideRead())
    if name not in titles:
        return refuse(f"there is no guide {shown(name)}; the guides are:\n{listed}")
    return ToolReply(text=read_guide(name), result=GuideRead(name=name))
