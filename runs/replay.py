"""Replaying a transcript's tool calls on this machine, and laying recorded and new results side by side."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from runs.events import Event, ModelReplied, ToolReturned
from runs.summary import Outcome, outcome_of
from tasks.errors import RunFormatError
from tasks.record import Record
from tools.text_results import WORDS

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools


class Replayed(Record):
    """One tool call, as recorded and as carried out again."""

    turn: int
    tool: str
    candidate: str | None
    recorded: Outcome
    replayed: Outcome
    message: str
    """What the tool said this time."""
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether the verdict is the same; times may differ between machines."""
        return self.recorded.verdict == self.replayed.verdict


def replay_calls(events: Sequence[Event], tools: "Tools") -> Iterator[Replayed]:
    """Carry out every call that was carried out then, in the same order, with the same arguments.

    Those that only told something, of a guide or of two texts, are left out: nothing of theirs depends on the machine.
    """
    arguments: dict[tuple[int, str], str] = {}
    for event in events:
        if isinstance(event, ModelReplied):
            arguments.update({(event.turn, call.id): call.arguments for call in event.tool_calls})
        elif isinstance(event, ToolReturned) and event.executed and not isinstance(event.reply.result, WORDS):
            call = arguments.get((event.turn, event.call_id))
            if call is None:
                raise RunFormatError(f"Event {event.sequence} answers the call {event.call_id!r}, which nobody made.")
            began = time.monotonic()
            reply = tools.call(event.tool, call)
            yield Replayed(
                turn=event.turn,
                tool=event.tool,
                candidate=reply.candidate,
                recorded=outcome_of(event.reply.result),
                replayed=outcome_of(reply.result),
                message=reply.text,
                seconds=time.monotonic() - began,
            )
