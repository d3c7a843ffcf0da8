"""Reading what providers send: nothing about its form is taken for granted."""

import itertools
import json
import math
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from runs.events import ToolCall, Usage

JsonObject = dict[str, JsonValue]
MOST_DEPTH = 100
"""Of values within values: what is nested deeper can be written into a transcript, but not be read again."""
MOST_DIGITS = 300
"""Of a number: what has more is none that a float can hold."""
MOST_TOKENS = 10**9
"""Of one reply: a server that counts more does not count."""


def object_of(value: JsonValue) -> JsonObject:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: JsonValue) -> list[JsonObject]:
    """The objects of a list; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def well_formed(value: JsonValue, depth: int = 0) -> JsonValue:
    """The value as it can be sent and stored: halves of characters are joined, or replaced where alone.

    A stream may cut a character outside of the basic plane in two, and tools may print anything. Numbers that are not
    finite, or thousands of digits long, become text; what is nested too deep is left out.
    """
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list() | dict() if depth >= MOST_DEPTH:
            return "(left out: nested too deep)"
        case list():
            return [well_formed(item, depth + 1) for item in value]
        case dict():
            return {text_of(well_formed(name)): well_formed(item, depth + 1) for name, item in value.items()}
        case float() if not math.isfinite(value):
            return str(value)
        case int() if abs(value) >= 10**MOST_DIGITS:
            return "(left out: too many digits)"
        case _:
            return value


def without_text(value: JsonValue, text: str, instead: str) -> JsonValue:
    """The value with something else wherever a text stands in it."""
    match value:
        case str():
            return value.replace(text, instead)
        case list():
            return [without_text(item, text, instead) for item in value]
        case dict():
            return {name.replace(text, instead): without_text(item, text, instead) for name, item in value.items()}
        case _:
            return value


def text_of(content: JsonValue) -> str:
    """Content as text: most servers send a string, some a list of parts."""
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def first_text(fields: Mapping[str, JsonValue], names: Iterable[str]) -> str:
    """The first of the named fields that holds any text."""
    return next(filter(None, (text_of(fields.get(name)) for name in names)), "")


def arguments_of(arguments: JsonValue) -> str:
    """A call's arguments as the raw text; some servers send them parsed."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {})


def tool_calls(calls: Iterable[tuple[str, str, JsonValue]]) -> tuple[ToolCall, ...]:
    """Calls from ids, names and arguments, each with an id of its own, which not every server gives."""
    found: list[ToolCall] = []
    for given, name, arguments in calls:
        taken = {other.id for other in found}
        free = (other for number in itertools.count(len(found)) if (other := f"call_{number}") not in taken)
        call_id = given if given and given not in taken else next(free)
        found.append(ToolCall(id=call_id, name=name or "unnamed", arguments=arguments_of(arguments)))
    return tuple(found)


def usage_of(usage: JsonValue, *, read: str, written: str) -> Usage:
    """The tokens of a reply, whose two counts have these names; zeros where the server counted none.

    Cached tokens are a part of the input, and tokens of reasoning a part of the output, whatever the server says.
    """
    counts = object_of(usage)
    total_in, total_out = _count(counts.get(f"{read}_tokens")), _count(counts.get(f"{written}_tokens"))
    cached = _count(object_of(counts.get(f"{read}_tokens_details")).get("cached_tokens"))
    reasoning = _count(object_of(counts.get(f"{written}_tokens_details")).get("reasoning_tokens"))
    return Usage(
        input_tokens=total_in,
        output_tokens=total_out,
        cached_tokens=min(cached, total_in),
        reasoning_tokens=min(reasoning, total_out),
    )


def _count(value: JsonValue) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value <= MOST_TOKENS else 0
