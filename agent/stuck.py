"""Noticing that a model is stuck: it makes calls that it has made before, and gets the results that it got then."""

import json

from runs.arguments import parsed_arguments
from runs.events import Event, ModelReplied, ToolReturned
from runs.summary import outcome_of
from tools.results import ToolReply

WARN_FROM = 2
"""Calls in a row that bring nothing new before the model is told: at the third, where it is always the same one."""
END_AT = 7
"""Calls in a row that bring nothing new before the rollout is ended."""

_Kind = tuple[str, str, str, str]


class Repetition:
    """Counts the calls in a row that bring nothing new: each the same as an earlier one, with the same result.

    Two results are the same if they are of the same candidate and have the same verdict; no time is measured twice.
    """

    def __init__(self) -> None:
        self._known: set[_Kind] = set()
        self._arguments: dict[str, str] = {}
        self.in_a_row = 0
        """How many the last calls were."""

    def see(self, event: Event) -> None:
        """Take in the next event of the rollout."""
        if isinstance(event, ModelReplied):
            self._arguments = {call.id: call.arguments for call in event.tool_calls}
        elif isinstance(event, ToolReturned) and event.executed:
            kind = _kind(event.tool, self._arguments.get(event.call_id, ""), event.reply)
            self.in_a_row = self.in_a_row + 1 if kind in self._known else 0
            self._known.add(kind)

    def with_next(self, tool: str, arguments: str, reply: ToolReply) -> int:
        """How many in a row it would be with one more call and its result."""
        return self.in_a_row + 1 if _kind(tool, arguments, reply) in self._known else 0


def _kind(tool: str, arguments: str, reply: ToolReply) -> _Kind:
    return tool, _canonical(arguments), reply.candidate or "", outcome_of(reply.result).verdict


def _canonical(arguments: str) -> str:
    parsed = parsed_arguments(arguments or "{}")
    return arguments if parsed is None else json.dumps(parsed, sort_keys=True)
