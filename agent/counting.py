"""What a server's counts of tokens are worth: it may count nothing, or count less than it was sent."""

import json

from agent.model import ModelReply
from agent.provider_json import JsonObject
from agent.window import BYTES_PER_TOKEN
from runs.events import Usage

GROWTH = 1.25
"""A request this much longer than the one before is longer in tokens too, whatever the tokenizer."""


class TokenCounts:
    """Looks at the counts of one conversation's replies, one after the other."""

    def __init__(self) -> None:
        self._size = 0
        self._input_tokens = 0

    def check(self, body: JsonObject, reply: ModelReply) -> ModelReply:
        """The reply with estimated tokens if the server counted none, and with a note if it counted too few."""
        size, counted = len(json.dumps(body)), reply.usage.input_tokens
        if not counted and not reply.usage.output_tokens:
            return reply.model_copy(update={"usage": _estimate(size, reply)})
        pinned = 0 < counted <= self._input_tokens and size >= GROWTH * self._size
        note = (
            f"The server counted {counted} tokens of a request of {size} bytes, and {self._input_tokens} of one of "
            f"{self._size} bytes before it: it seems to cut conversations off without saying so. Give it a longer "
            "context (Ollama: num_ctx)."
        )
        if not pinned:
            self._size, self._input_tokens = size, counted
        return reply.model_copy(update={"note": note}) if pinned else reply


def _estimate(size: int, reply: ModelReply) -> Usage:
    """So that limits in tokens hold all the same."""
    written = len(reply.text) + len(reply.reasoning) + sum(len(call.arguments) for call in reply.tool_calls)
    return Usage(
        input_tokens=round(size / BYTES_PER_TOKEN), output_tokens=round(written / BYTES_PER_TOKEN), estimated=True
    )
