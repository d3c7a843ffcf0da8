"""Schemas of arguments in the form that servers can keep a model to."""

from collections.abc import Mapping

from pydantic import JsonValue

from agent.provider_json import JsonObject, object_of, objects_of

_NESTED = ("$ref", "$defs", "properties", "allOf", "oneOf")


def strict_schema(schema: Mapping[str, JsonValue]) -> JsonObject | None:
    """The schema with every argument required and no other allowed; None where that would change what it accepts.

    An optional argument may become required only if it may also be null. Nested objects are not attempted.
    Source: the rules for `strict` in OpenAI's guide to function calling.
    """
    properties = {name: object_of(value) for name, value in object_of(schema.get("properties")).items()}
    listed = schema.get("required")
    required = set(listed) if isinstance(listed, list) else set()
    for name, value in properties.items():
        if any(key in value for key in _NESTED) or (name not in required and not _may_be_null(value)):
            return None
    flat: JsonObject = {
        name: {key: part for key, part in value.items() if key != "default"} for name, value in properties.items()
    }
    return {**schema, "properties": flat, "required": list(properties), "additionalProperties": False}


def _may_be_null(value: JsonObject) -> bool:
    return any(option.get("type") == "null" for option in objects_of(value.get("anyOf")))
