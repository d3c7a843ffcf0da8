"""The text of a foreign file as JSON, and errors that say where in the file something is wrong."""

import json
import math
import re
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from tasks.errors import UsageError

DEEPEST = 200
"""Levels of nesting; deeper ones come from nobody's agent, and could not be written again."""


class ForeignFormatError(UsageError):
    """A file that is to be imported does not have the form it should have."""


class ForeignForm(BaseModel):
    """The base of forms that others define: what we do not know of is left to the raw text."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""May be half of a surrogate pair, written as an escape."""

Form = TypeVar("Form", bound=ForeignForm)


def parse_json(text: str, first_line: int = 1) -> JsonValue:
    """The value that a text holds; halves of surrogate pairs, which no file can hold, become question marks.

    Raises:
        ForeignFormatError: it is not JSON; the message names the line, counted from `first_line`.
    """
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ForeignFormatError(f"line {line}, column {error.colno}: this is not JSON: {error.msg}") from error
    except ValueError as error:
        raise ForeignFormatError(
            f"line {first_line} or later: a number is NaN, Infinity, beyond 1.8e308 or thousands of digits long"
        ) from error
    except RecursionError as error:
        raise _too_deep(first_line) from error
    if _deeper_than(value, DEEPEST):
        raise _too_deep(first_line)
    return _without_halves(value) if _HALF.search(text) else value


def read_form(form: type[Form], value: JsonValue, where: str) -> Form:
    """A value in a form; raises ForeignFormatError with the place of what does not fit."""
    try:
        return form.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(filter(None, (where, *map(str, first["loc"]))))
        raise ForeignFormatError(f"{place}: {first['msg']}") from error


def without(value: JsonValue, *names: str) -> dict[str, JsonValue]:
    """The members of an object but for some."""
    return {name: item for name, item in value.items() if name not in names} if isinstance(value, dict) else {}


def text_of(content: JsonValue) -> str:
    """Content as text: a string, or the text parts of a list of parts."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _without_halves(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return _whole(value)
        case list():
            return [_without_halves(item) for item in value]
        case dict():
            return {_whole(name): _without_halves(item) for name, item in value.items()}
        case _:
            return value


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _refuse_constant(name: str) -> JsonValue:
    raise ValueError(name)


def _finite(digits: str) -> float:
    """A number with a fraction or an exponent; `1e999` would be read as infinite, and no JSON has a word for that."""
    value = float(digits)
    if math.isinf(value):
        raise ValueError(digits)
    return value


def _too_deep(line: int) -> ForeignFormatError:
    return ForeignFormatError(f"line {line} or later: the value is nested deeper than {DEEPEST} levels")


def _deeper_than(value: JsonValue, limit: int) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(limit + 1):
        if not level:
            return False
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return bool(level)
