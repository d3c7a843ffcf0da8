"""Progress of a run, a line as each thing happens; on a terminal also what is being waited for."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

from runs.events import Compacted, Ended, Event, ModelReplied, Resumed, Retried, RolloutStarted, ToolReturned
from runs.summary import call_row
from runs.terminal import call_line, printable, whence

MOST_TEXT = 160
"""Characters of a reply that a progress line shows."""


class Progress:
    """Watches the events of rollouts. A context manager: leaving it stops the spinner."""

    def __init__(self, console: Console, *, several: bool = False) -> None:
        """`several` says that rollouts go on at once: each line begins with its rollout's name."""
        self._console = console
        self._several = several
        self._noted: set[str] = set()
        self._status: Status | None = Status("", console=console) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def waiting_for(self, what: str) -> None:
        """Show what is being waited for, where that can be shown."""
        if self._status is not None:
            self._status.update(Text(printable(what)))

    def note(self, text: str) -> None:
        """Tell what is being done: in the spinner's line on a terminal, else in a line of its own.

        Of several rollouts one waits for another all the time, which is told once.
        """
        if self._status is not None:
            self.waiting_for(text)
        elif not (self._several and text in self._noted):
            self._noted.add(text)
            self.say(text)

    def watcher(self, rollout: str) -> Callable[[Event], None]:
        """What tells about the events of one rollout; each may be called from a thread of its own."""
        name = f"{rollout}  " if self._several else ""
        return lambda event: self._watch(event, name)

    def _watch(self, event: Event, name: str) -> None:
        match event:
            case RolloutStarted():
                self._started(event, name)
            case ModelReplied():
                self.say(name + _reply_line(event))
                if event.note:
                    self.say(f"{name}turn {event.turn}  note: {event.note}")
                self._now(", ".join(call.name for call in event.tool_calls) or "the model is thinking")
            case ToolReturned():
                self._console.print(Text(name).append_text(call_line(call_row(event))), soft_wrap=True)
                self._now("the model is thinking")
            case Retried():
                self.say(f"{name}turn {event.turn}  trying again in {event.wait_s:.0f} s: {event.error}")
            case Compacted():
                self.say(f"{name}turn {event.turn}  the conversation is too long: {event.turns_removed} turns leave it")
            case Resumed():
                self.say(f"{name}resumed after turn {event.turn}")
            case Ended():
                self.say(f"{name}ended: {event.reason.value}: {event.message}")
            case _:
                pass

    def _started(self, event: RolloutStarted, name: str) -> None:
        started = "started" if event.origin is None else f"started: {whence(event.origin)}"
        if self._several:
            self.say(name + started)
        else:
            self._console.print(Rule(f"{event.rollout} {started}", align="left", characters="-"))
        self._now(f"{event.model} is thinking")

    def _now(self, what: str) -> None:
        """Show what a rollout waits for; of several at once no one says what all wait for."""
        self.waiting_for("several rollouts" if self._several else what)


def _reply_line(event: ModelReplied) -> str:
    said = " ".join((event.text or event.reasoning).split())
    short = said if len(said) <= MOST_TEXT else said[:MOST_TEXT].rstrip() + "..."
    took = "" if event.seconds is None else f"  [{event.seconds:.1f} s]"
    return f"turn {event.turn}  {short or '(no words)'}{took}"
