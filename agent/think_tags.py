"""Reasoning that a server leaves in the text, between `<think>` and `</think>`."""

import re

_OPENING = re.compile(r"\s*<(?:think|thinking|thought)>\s*")
_CLOSING = re.compile(r"\s*</(?:think|thinking|thought)>\s*")


def split_thoughts(text: str) -> tuple[str, str]:
    """The reasoning and the rest of a text; the reasoning is empty where the text begins with none.

    Many chat templates open the tag in the prompt, so that only the closing one is in the text. A tag that is never
    closed belongs to a reply that was cut off while it reasoned.
    """
    opening = _OPENING.match(text)
    begin = opening.end() if opening else 0
    closing = _CLOSING.search(text, begin)
    if closing is not None and (opening or not _OPENING.search(text, 0, closing.start())):
        return text[begin : closing.start()].strip(), text[closing.end() :]
    return (text[begin:].strip(), "") if opening else ("", text)
