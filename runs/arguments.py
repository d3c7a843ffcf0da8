"""The arguments of a tool call, which are whatever text the model wrote."""

from pydantic import JsonValue
from pydantic_core import from_json


def parsed_arguments(text: str) -> dict[str, JsonValue] | None:
    """The arguments as an object; None where the text is none that every reader of JSON would take.

    So not where it holds NaN or half of a surrogate pair, or is nested hundreds deep.
    """
    try:
        parsed = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
