"""The conversation of one rollout as the model's server is to see it: a head, then one group of messages a turn."""

import json
import re

from agent.model import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from agent.window import size_of
from runs.arguments import parsed_arguments
from runs.events import Compacted, Event, ModelReplied, Nudged, RolloutStarted, ToolCall, ToolReturned

MOST_NAME = 64
"""Characters of a tool's name that every server takes back."""
_UNUSUAL = re.compile("[^a-zA-Z0-9_-]")
"""What OpenAI refuses in the name of a call, also of one that its own model made, such as `functions.verify`."""


class Conversation:
    """What has been said, built from the rollout's events alone, so that a resumed rollout says the same.

    A turn (a reply and everything said about it) is kept or removed only as a whole: servers refuse a call without its
    result, and models copy the gaps of shortened calls into new ones.
    """

    def __init__(self, started: RolloutStarted) -> None:
        self._system = SystemMessage(text=started.system_prompt)
        self._opening = started.opening
        self._tools_size = len(json.dumps(started.tools))
        self._note = ""
        self._turns: list[list[Message]] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, oldest first."""
        return (*self._head(self._note), *(message for turn in self._turns for message in turn))

    @property
    def size_bytes(self) -> int:
        """Of all that a request sends, tools included."""
        return self.size_without(0, self._note)

    @property
    def turns(self) -> int:
        """How many turns it holds."""
        return len(self._turns)

    def size_without(self, turns: int, note: str) -> int:
        """The bytes that would be left without the oldest turns, and with a note in their place."""
        kept = (message for turn in self._turns[turns:] for message in turn)
        return self._tools_size + size_of((*self._head(note), *kept))

    def see(self, event: Event) -> None:
        """Take in the next event of the rollout."""
        match event:
            case ModelReplied():
                self._turns.append([_assistant_message(event)])
            case ToolReturned():
                self._turns[-1].append(ToolMessage(call_id=event.call_id, text=event.reply.text))
            case Nudged():
                self._turns[-1].append(UserMessage(text=event.text))
            case Compacted():
                del self._turns[: event.turns_removed]
                self._note = event.note
            case _:
                pass

    def _head(self, note: str) -> tuple[Message, Message]:
        return self._system, UserMessage(text=f"{self._opening}\n\n{note}".strip())


def _assistant_message(event: ModelReplied) -> AssistantMessage:
    calls = tuple(
        call.model_copy(update={"name": _UNUSUAL.sub("_", call.name)[:MOST_NAME], "arguments": _replayable(call)})
        for call in event.tool_calls
    )
    return AssistantMessage(text=event.text, tool_calls=calls, reasoning=event.reasoning_fields)


def _replayable(call: ToolCall) -> str:
    """Arguments that a server will take back; broken JSON in the history makes some refuse every later request."""
    return "{}" if parsed_arguments(call.arguments) is None else call.arguments
