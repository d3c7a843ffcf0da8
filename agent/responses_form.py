"""The form of OpenAI Responses: our conversation as a request, and its answer as a reply.

The server is asked to keep nothing (`store` is false), so the conversation is sent whole each time, and reasoning comes
encrypted, to be passed back as it is. Source: OpenAI's guide to conversation state and reasoning items.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from pydantic import JsonValue

from agent.manner import Manner
from agent.model import AssistantMessage, Message, ModelReply, SystemMessage, ToolDefinition, ToolMessage, UserMessage
from agent.provider_json import JsonObject, object_of, objects_of, text_of, tool_calls, usage_of
from agent.responses_stream import assemble_events
from agent.server_faults import fault_in_body, no_reply
from agent.strict_schema import strict_schema
from runs.apis import ReasoningEcho
from runs.events import ToolCall

OUTPUT = "output"
"""Under this name a reply's output items go back to the server."""


class ResponsesForm:
    """Responses."""

    path = "/responses"

    def body(
        self, model: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], manner: Manner
    ) -> JsonObject:
        """The body of a request."""
        options = manner.options
        kept = not manner.sends("store")
        body: JsonObject = {
            "model": model,
            "input": [item for message in messages for item in _items(message, options.reasoning, kept)],
            # Some servers stream unless they are told not to.
            "stream": options.stream,
        }
        instructions = "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage))
        if instructions:
            body["instructions"] = instructions
        if tools:
            body["tools"] = [_tool(cast(JsonObject, tool), options.strict, manner.sends("strict")) for tool in tools]
            if options.parallel_calls is not None and manner.sends("parallel_tool_calls"):
                body["parallel_tool_calls"] = options.parallel_calls
        if not kept:
            body["store"] = False
            if manner.sends("include"):
                body["include"] = ["reasoning.encrypted_content"]
        summary = options.summary if manner.sends("reasoning.summary") else None
        reasoning: JsonObject = {"effort": options.effort, "summary": summary}
        if any(reasoning.values()):
            body["reasoning"] = {name: value for name, value in reasoning.items() if value}
        if options.temperature is not None and manner.sends("temperature"):
            body["temperature"] = options.temperature
        if options.output_tokens is not None:
            body["max_output_tokens"] = options.output_tokens
        return body

    def assemble(self, events: Iterable[JsonObject]) -> JsonObject:
        """The answer that a stream amounts to."""
        return assemble_events(events)

    def reply(self, answer: JsonObject) -> ModelReply:
        """The reply in an answer; raises ServerFault where there is none, also for failures told inside the answer."""
        status = text_of(answer.get("status")) or "completed"
        if answer.get("error"):
            raise fault_in_body(answer["error"])
        output = objects_of(answer.get(OUTPUT))
        if status not in ("completed", "incomplete") or (not output and status == "completed"):
            raise no_reply(f"a response that is {status} and holds no reply: {json.dumps(answer)[:300]}")
        calls = tool_calls(
            (text_of(item.get("call_id")) or text_of(item.get("id")), text_of(item.get("name")), item.get("arguments"))
            for item in _calls_among(output)
        )
        return ModelReply(
            text="".join(map(_message_text, (item for item in output if item.get("type") == "message"))),
            reasoning="\n\n".join(filter(None, map(_reasoning_text, output))),
            reasoning_fields={OUTPUT: [_without_arguments(item) for item in output]},
            tool_calls=calls,
            usage=usage_of(answer.get("usage"), read="input", written="output"),
            finish_reason=_finish_reason(status, object_of(answer.get("incomplete_details")), calls),
            raw=answer,
        )


def _finish_reason(status: str, details: JsonObject, calls: Sequence[ToolCall]) -> str:
    if status == "incomplete":
        reason = text_of(details.get("reason"))
        return "length" if reason in ("", "max_output_tokens") else reason
    return "tool_calls" if calls else "stop"


def _message_text(item: JsonObject) -> str:
    return "".join(
        text_of(part.get("text")) or text_of(part.get("refusal")) for part in objects_of(item.get("content"))
    )


def _reasoning_text(item: JsonObject) -> str:
    """The reasoning of a reasoning item: itself where the server gives it, else the summary of it."""
    if item.get("type") != "reasoning":
        return ""
    parts = objects_of(item.get("content")) or objects_of(item.get("summary"))
    return "\n\n".join(text_of(part.get("text")) for part in parts)


def _calls_among(items: Iterable[JsonObject]) -> Iterator[JsonObject]:
    return (item for item in items if item.get("type") == "function_call")


def _without_arguments(item: JsonObject) -> JsonValue:
    """An item to keep; arguments are kept once, with the call, and go back only if they are JSON."""
    return {name: value for name, value in item.items() if item.get("type") != "function_call" or name != "arguments"}


def _tool(tool: JsonObject, strict: bool, may_say_so: bool) -> JsonValue:
    function = object_of(tool.get("function"))
    schema = strict_schema(object_of(function.get("parameters"))) if strict and may_say_so else None
    flat: JsonObject = {"type": "function", **function}
    if may_say_so:
        # Here, unlike in Chat Completions, a schema is strict unless this is said.
        flat["strict"] = schema is not None
    return {**flat, "parameters": schema} if schema else flat


def _items(message: Message, echo: ReasoningEcho, kept: bool) -> list[JsonValue]:
    match message:
        case SystemMessage():
            return []
        case UserMessage():
            return [{"role": "user", "content": message.text}]
        case ToolMessage():
            return [{"type": "function_call_output", "call_id": message.call_id, "output": message.text}]
        case AssistantMessage():
            items = objects_of(message.reasoning.get(OUTPUT))
            return _echoed(message, items, echo, kept) or _plain(message)


def _plain(message: AssistantMessage) -> list[JsonValue]:
    """A reply without its reasoning, and without the ids that would make the server look for it."""
    said: list[JsonValue] = [{"role": "assistant", "content": message.text}] if message.text else []
    return said + [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]


def _echoed(message: AssistantMessage, items: Sequence[JsonObject], echo: ReasoningEcho, kept: bool) -> list[JsonValue]:
    """The output items as they came; nothing where they cannot go back.

    A server that keeps nothing takes a reasoning item only with its content; and none takes one that nothing follows,
    as in a reply that was cut off.
    """
    if echo is ReasoningEcho.EXCLUDE or len(list(_calls_among(items))) != len(message.tool_calls):
        return []
    reasoning = [item for item in items if item.get("type") == "reasoning"]
    whole = all(kept or item.get("encrypted_content") or item.get("content") for item in reasoning)
    if not whole or not items or items[-1].get("type") == "reasoning":
        return []
    calls = iter(message.tool_calls)
    return [_with_call(item, next(calls)) if item.get("type") == "function_call" else item for item in items]


def _with_call(item: JsonObject, call: ToolCall) -> JsonValue:
    return {**item, "call_id": call.id, "name": call.name, "arguments": call.arguments}
