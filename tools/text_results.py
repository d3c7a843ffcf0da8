"""Results that are words: what they say is the text of the reply, and here stands what it is about."""

from typing import Literal

from tasks.record import Record


class GuideRead(Record):
    """A guide that was read, or the list of them; its words are the reply's text."""

    status: Literal["guide"] = "guide"
    name: str = ""
    """Empty for the list."""


class Compared(Record):
    """The text of a candidate beside that of the best so far; the difference is the reply's text."""

    status: Literal["compared"] = "compared"
    candidate: str
    best: str


WORDS = (GuideRead, Compared)
