"""The conversation of one rollout as the model's server is to see it: a head, then one group of messages a turn."""

import json

from agent.model import AssistantMessage, Message, ModelReply, SystemMessage, ToolMessage, UserMessage
from runs.events import ToolCall


class Conversation:
    """What has been said. A turn (a reply and everything said about it) is kept or removed only as a whole."""

    def __init__(self, system_prompt: str, opening: str) -> None:
        self._system = SystemMessage(text=system_prompt)
        self._opening = opening
        self._note = ""
        self._turns: list[list[Message]] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, oldest first."""
        opening = UserMessage(text=f"{self._opening}\n\n{self._note}".strip())
        return (self._system, opening, *(message for turn in self._turns for message in turn))

    def add_reply(self, reply: ModelReply) -> None:
        """Begin a turn with the model's reply."""
        calls = tuple(call.model_copy(update={"arguments": _replayable(call)}) for call in reply.tool_calls)
        self._turns.append([AssistantMessage(text=reply.text, tool_calls=calls, reasoning=reply.reasoning_fields)])

    def add_result(self, call_id: str, text: str) -> None:
        """Answer one call of the turn's reply."""
        self._turns[-1].append(ToolMessage(call_id=call_id, text=text))

    def add_user(self, text: str) -> None:
        """Say something at the turn's end."""
        self._turns[-1].append(UserMessage(text=text))

    def compact(self, note: str) -> tuple[int, int]:
        """Remove the older half of the turns and leave a note; returns how many went and how many stayed."""
        removed = len(self._turns) // 2
        if removed:
            del self._turns[:removed]
            self._note = note
        return removed, len(self._turns)


def _replayable(call: ToolCall) -> str:
    """Arguments that a server will take back; broken JSON in the history makes some refuse every later request."""
    try:
        parsed = json.loads(call.arguments)
    except ValueError:
        return "{}"
    return call.arguments if isinstance(parsed, dict) else "{}"
