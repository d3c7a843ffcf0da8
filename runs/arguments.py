"""The arguments of a tool call, which are whatever text the model wrote."""

import math

from pydantic import JsonValue
from pydantic_core import from_json


def parsed_arguments(text: str) -> dict[str, JsonValue] | None:
    """The arguments as an object; None where the text is none that every reader of JSON would take.

    So not where it holds NaN, a number beyond the largest or half of a surrogate pair, or is nested hundreds deep.
    """
    try:
        parsed = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) and _finite(parsed) else None


def _finite(value: JsonValue) -> bool:
    """Whether all numbers in it are; `1e999` is read as infinite."""
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
