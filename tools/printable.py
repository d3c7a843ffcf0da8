"""Texts that candidates have a hand in, on their way to a terminal, a model or a page."""

import re

# Control characters except line feed and tab: an escape sequence clears a terminal, writes over what stands there, or
# fills the clipboard. And those that turn the direction of writing, so that a line reads otherwise than it is.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text with control characters written out, as `\x1b`, and with plain line ends."""
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))
