"""Progress of a run, a line as each thing happens; on a terminal also what is being waited for."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

from runs.events import Ended, Event, ModelReplied, Retried, RolloutStarted, ToolReturned
from runs.summary import call_row
from runs.terminal import call_line, printable

MOST_TEXT = 160
"""Characters of a reply that a progress line shows."""


class Progress:
    """Watches the events of rollouts. A context manager: leaving it stops the spinner."""

    def __init__(self, console: Console) -> None:
        self._console = console
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
        """Tell what is being done: in the spinner's line on a terminal, else in a line of its own."""
        if self._status is not None:
            self.waiting_for(text)
        else:
            self.say(text)

    def watch(self, event: Event) -> None:
        """Tell about an event."""
        match event:
            case RolloutStarted():
                self._console.print(Rule(event.rollout, align="left", characters="-"))
                self.waiting_for(f"{event.model} is thinking")
            case ModelReplied():
                self.say(_reply_line(event))
                self.waiting_for(", ".join(call.name for call in event.tool_calls) or "the model is thinking")
            case ToolReturned():
                self._console.print(call_line(call_row(event)), soft_wrap=True)
                self.waiting_for("the model is thinking")
            case Retried():
                self.say(f"turn {event.turn}  trying again in {event.wait_s:.0f} s: {event.error}")
            case Ended():
                self.say(f"ended: {event.reason.value}: {event.message}")
            case _:
                pass


def _reply_line(event: ModelReplied) -> str:
    said = " ".join((event.text or event.reasoning).split())
    short = said if len(said) <= MOST_TEXT else said[:MOST_TEXT].rstrip() + "..."
    took = "" if event.seconds is None else f"  [{event.seconds:.1f} s]"
    return f"turn {event.turn}  {short or '(no words)'}{took}"
