"""Encodes the arguments of a task's `Model` as JSON text: numbers, texts, None, lists, tuples, dicts of these."""

import json
from typing import Any


def encode(value: Any) -> str:
    """The JSON text of a plain value; tuples keep their kind.

    Raises:
        TypeError: a value of another kind, for example a tensor.
    """
    return json.dumps(_tagged(value))


def decode(text: str) -> Any:
    """The value that `encode` was given."""
    return _untagged(json.loads(text))


def _tagged(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"tuple": [_tagged(item) for item in value]}
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[_tagged(key), _tagged(item)] for key, item in value.items()]}
    raise TypeError(f"{type(value).__name__} cannot be passed to a worker")


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if isinstance(value, dict):
        if "tuple" in value:
            return tuple(_untagged(item) for item in value["tuple"])
        return {_untagged(key): _untagged(item) for key, item in value["dict"]}
    return value
