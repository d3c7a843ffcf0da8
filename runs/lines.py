"""The line of an event in a transcript."""

from pydantic_core import PydanticSerializationError

from runs.events import EVENT, Stamped


def line_of(event: Stamped) -> bytes:
    """The event as JSON in UTF-8, with the end of the line."""
    try:
        text = event.model_dump_json()
    except PydanticSerializationError:
        # A model may write half of a surrogate pair, which UTF-8 has no bytes for.
        text = EVENT.validate_python(_without_surrogates(event.model_dump())).model_dump_json()
    return text.encode() + b"\n"


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value
