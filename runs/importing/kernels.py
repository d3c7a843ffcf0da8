"""The kernels in an imported conversation: texts that define `ModelNew`, in tool calls and in code blocks."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from runs.events import Event, ModelReplied, ToolCall, ToolReturned
from tools.candidate import Candidate

_DEFINES = re.compile(r"^[ \t]*class[ \t]+ModelNew\b", re.MULTILINE)
_MENTIONS = re.compile(r"\bclass\s+ModelNew\b")
_FENCE = "```"
_LANGUAGE = re.compile(r"([\w+.-]*)[ \t]*\n?")


@dataclass
class Kernels:
    """What was found."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    """By id, in the order in which they appear."""
    damaged: int = 0
    """Code blocks that define ModelNew and are no Python, for example because their line breaks were lost."""

    def find_in(self, events: Sequence[Event]) -> list[Event]:
        """Collect the kernels of a conversation; returns its events, with each result tied to its call's candidate."""
        found: list[Event] = []
        asked: dict[str, str] = {}
        for event in events:
            if isinstance(event, ModelReplied):
                asked = self._in_reply(event)
            elif isinstance(event, ToolReturned) and event.call_id in asked:
                reply = event.reply.model_copy(update={"candidate": asked[event.call_id]})
                event = event.model_copy(update={"reply": reply})
            found.append(event)
        return found

    def _in_reply(self, reply: ModelReplied) -> dict[str, str]:
        """The candidate of each call that holds exactly one, by the call's id."""
        for text in (reply.reasoning, reply.text):
            for block in _code_blocks(text):
                if is_python(block):
                    self._add(block)
                else:
                    self.damaged += 1
        asked: dict[str, str] = {}
        for call in reply.tool_calls:
            ids = {self._add(text) for text in _texts_of(call) if _DEFINES.search(text)}
            if len(ids) == 1:
                asked[call.id] = ids.pop()
        return asked

    def _add(self, text: str) -> str:
        candidate = Candidate(text)
        self.candidates.setdefault(candidate.id, candidate)
        return candidate.id


def _code_blocks(text: str) -> Iterator[str]:
    """The fenced blocks that define ModelNew, without the name of their language."""
    inside = False
    for block in text.split(_FENCE)[1:]:
        language = _LANGUAGE.match(block)
        # A fence with a language opens a block, even where an elision took the end of the one before.
        inside = not inside or (language is not None and language[1] != "")
        if inside and language is not None and _MENTIONS.search(block):
            yield block[language.end() :]


def is_python(text: str) -> bool:
    """Whether a text is a module of Python, as far as its syntax tells."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _texts_of(call: ToolCall) -> Iterator[str]:
    """Every string in a call's arguments."""
    try:
        pending: list[JsonValue] = [json.loads(call.arguments)]
    except (ValueError, RecursionError):
        return
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            pending += value.values() if isinstance(value, dict) else value
