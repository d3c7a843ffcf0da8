"""The form of OpenAI Chat Completions: our messages as requests, and its answers as replies."""

import json
from collections.abc import Sequence

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion
from pydantic import JsonValue, TypeAdapter

from agent.model import AssistantMessage, Message, ModelReply, SystemMessage, ToolMessage, UserMessage
from runs.events import ToolCall, Usage
from tasks.errors import ModelServerError

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where servers put the reasoning; OpenAI's own Chat Completions has no field for it."""

_JSON_OBJECT: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


def request_messages(messages: Sequence[Message], with_reasoning: bool) -> list[dict[str, JsonValue]]:
    """The conversation as a request's `messages`."""
    return [_request_message(message, with_reasoning) for message in messages]


def _request_message(message: Message, with_reasoning: bool) -> dict[str, JsonValue]:
    match message:
        case SystemMessage() | UserMessage():
            return {"role": message.role, "content": message.text}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
        case AssistantMessage():
            request: dict[str, JsonValue] = {"role": "assistant", "content": message.text}
            if message.tool_calls:
                request["tool_calls"] = [_request_call(call) for call in message.tool_calls]
            return {**request, **(message.reasoning if with_reasoning else {})}


def _request_call(call: ToolCall) -> JsonValue:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def reply_from(answer: ChatCompletion) -> ModelReply:
    """The reply in an answer. The SDK does not validate answers, so nothing about their form is taken for granted."""
    raw = _JSON_OBJECT.validate_python(answer.model_dump(mode="json", warnings=False))
    choices = raw.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        error = json.dumps(raw.get("error") or raw)[:300]
        raise ModelServerError(f"The model's server answered without a message: {error}")
    reasoning = {name: message[name] for name in REASONING_FIELDS if message.get(name)}
    return ModelReply(
        text=_text(message.get("content")),
        reasoning=_reasoning_text(reasoning),
        reasoning_fields=reasoning,
        tool_calls=_tool_calls(message.get("tool_calls")),
        usage=_usage(answer.usage),
        finish_reason=_text(choice.get("finish_reason")) or "stop",
        raw=raw,
    )


def _text(content: JsonValue) -> str:
    """Content as text: most servers send a string, some a list of parts."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _reasoning_text(fields: dict[str, JsonValue]) -> str:
    """The reasoning as text, from the first field that holds any."""
    return next(filter(None, map(_reasoning_of, fields.values())), "")


def _reasoning_of(value: JsonValue) -> str:
    if isinstance(value, list):
        parts = (part for part in value if isinstance(part, dict))
        return "\n".join(filter(None, (_text(part.get("text")) or _text(part.get("summary")) for part in parts)))
    return _text(value)


def _tool_calls(calls: JsonValue) -> tuple[ToolCall, ...]:
    """The calls, each with an id of its own, which not every server gives."""
    found: list[ToolCall] = []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict):
            continue
        arguments = function.get("arguments")
        call_id = _text(call.get("id"))
        if not call_id or any(call_id == other.id for other in found):
            call_id = f"call_{len(found)}"
        found.append(
            ToolCall(
                id=call_id,
                name=_text(function.get("name")) or "unnamed",
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments or {}),
            )
        )
    return tuple(found)


def _usage(usage: CompletionUsage | None) -> Usage:
    if usage is None:
        return Usage()
    cached = usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
    reasoning = usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=cached or 0,
        reasoning_tokens=reasoning or 0,
    )
