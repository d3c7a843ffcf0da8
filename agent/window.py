"""How much of the model's context a conversation takes: an estimate, corrected by what the server counted."""

import json
from collections.abc import Sequence

from agent.model import AssistantMessage, Message

BYTES_PER_TOKEN = 3.0
"""Before any server has counted: code has fewer bytes in a token than prose, which has four."""
LEAST_RATIO, MOST_RATIO = 1.5, 6.0
"""What is believed of a server's count: one that cuts conversations off in silence counts too few."""
FULL_SHARE = 0.75
"""Of the context, that a conversation may fill before a reply; the rest is for the reply and its reasoning."""
COMPACTED_SHARE = 0.5
"""Of the context, that is left filled when room is made."""
OVERFLOW_SHARE = 0.9
"""Of what was too long for a model, that is taken for what it can take."""


class Window:
    """The context of one model, as far as it is known by now."""

    def __init__(self, limit_tokens: int | None = None) -> None:
        """`limit_tokens` is None where nobody has said; then the first overflow tells."""
        self.limit_tokens = limit_tokens
        self._ratio = BYTES_PER_TOKEN

    def tokens(self, size_bytes: int) -> int:
        """How many tokens a text of a size is, about."""
        return round(size_bytes / self._ratio)

    def is_full(self, size_bytes: int) -> bool:
        """Whether a conversation of a size leaves too little for a reply."""
        return self.limit_tokens is not None and self.tokens(size_bytes) > FULL_SHARE * self.limit_tokens

    def fits_well(self, size_bytes: int) -> bool:
        """Whether a conversation of a size leaves room for several turns."""
        return self.limit_tokens is None or self.tokens(size_bytes) <= COMPACTED_SHARE * self.limit_tokens

    def calibrate(self, size_bytes: int, input_tokens: int) -> None:
        """Learn from what a server counted for a conversation of a size; a count of 0 says nothing."""
        if input_tokens > 0:
            self._ratio = min(MOST_RATIO, max(LEAST_RATIO, size_bytes / input_tokens))

    def learn(self, limit_tokens: int | None) -> None:
        """Take over a limit that is lower than what was known."""
        if limit_tokens is not None:
            self.limit_tokens = min(limit_tokens, self.limit_tokens or limit_tokens)


def size_of(messages: Sequence[Message]) -> int:
    """The bytes of all that is sent with some messages: text, the arguments of calls, reasoning that goes back."""
    return sum(_size(message) for message in messages)


def _size(message: Message) -> int:
    size = _bytes(message.text)
    if isinstance(message, AssistantMessage):
        size += sum(_bytes(call.name) + _bytes(call.arguments) for call in message.tool_calls)
        size += _bytes(json.dumps(message.reasoning)) if message.reasoning else 0
    return size


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
