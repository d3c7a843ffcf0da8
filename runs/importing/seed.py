"""The seed format: the reasoning of a model as plain text, with elisions, then the tool call it ended in.

    reasoning                                   or  reasoning (truncated 4616 chars): ...
    ... text, in which `...[ omitted 4616 characters ]...` may stand ...
    call → compile_kernel
    callcompile_kernel
    {"kernel_code": "..."}

A file may end without a call. Elisions stay in the text as they are: what is missing is not known.
"""

import json
import re

from runs.events import ToolCall
from runs.importing.document import ForeignFormatError
from runs.importing.draft import Draft, Reply

_HEADING = re.compile(r"\s*(reasoning(?: \(truncated \d+ chars\))?)(?:: ?|[ \t]*\n)")
_SPACE = re.compile(r"\s*")
_CALL = re.compile(r"^call → (?P<name>\S+)[ \t]*\ncall(?P=name)[ \t]*\n\s*", re.MULTILINE)


def looks_like_seed(text: str) -> bool:
    """Whether a text begins as the format does."""
    return _HEADING.match(text) is not None


def read_seed(text: str) -> list[Draft]:
    """The one conversation of a file.

    Raises:
        ForeignFormatError: it does not have this form.
    """
    text = text.replace("\r\n", "\n")
    draft = Draft()
    at: int | None = 0
    while at is not None:
        at = _read_turn(draft, text, at)
    return [draft]


def _read_turn(draft: Draft, text: str, at: int) -> int | None:
    """Read a heading, its reasoning and the calls after it; where the next turn begins, None at the end."""
    heading = _HEADING.match(text, at)
    if heading is None:
        raise ForeignFormatError(f"line {_line(text, at)}: the seed format begins with a line `reasoning`")
    call = _CALL.search(text, heading.end())
    reasoning = text[heading.end() : len(text) if call is None else call.start()].strip()
    calls: list[ToolCall] = []
    at = len(text) if call is None else call.start()
    while call is not None:
        arguments, at = _arguments(text, call)
        calls.append(ToolCall(id=f"call_{draft.turns + 1}_{len(calls) + 1}", name=call["name"], arguments=arguments))
        call = _CALL.match(text, _after_space(text, at))
    draft.reply(Reply(text="", reasoning=reasoning, tool_calls=tuple(calls), raw={"heading": heading[1]}))
    if _HEADING.match(text, at):
        return at
    if left := text[at:].strip():
        draft.keep("", left, left)
    return None


def _arguments(text: str, call: re.Match[str]) -> tuple[str, int]:
    """The arguments as they were written, and where they end."""
    try:
        _, end = json.JSONDecoder().raw_decode(text, call.end())
    except (ValueError, RecursionError) as error:
        at, why = (error.pos, error.msg) if isinstance(error, json.JSONDecodeError) else (call.end(), str(error))
        raise ForeignFormatError(
            f"line {_line(text, at)}: the arguments of the call {call['name']} are not JSON: {why}"
        ) from error
    return text[call.end() : end], end


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
