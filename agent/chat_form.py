"""The form of OpenAI Chat Completions: our conversation as a request, and its answer as a reply."""

import json
from collections.abc import Iterable, Sequence
from typing import cast

from pydantic import JsonValue

from agent.chat_stream import assemble_chunks
from agent.manner import Manner
from agent.model import AssistantMessage, Message, ModelReply, SystemMessage, ToolDefinition, ToolMessage, UserMessage
from agent.provider_json import JsonObject, first_text, object_of, objects_of, text_of, tool_calls, usage_of
from agent.server_faults import fault_in_body, no_reply
from agent.strict_schema import strict_schema
from agent.think_tags import split_thoughts
from runs.apis import ReasoningEcho
from runs.events import ToolCall

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where servers put the reasoning; OpenAI's own Chat Completions has no field for it."""
_CUT_OFF = ("max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
"""Other words for `length`."""


class ChatForm:
    """Chat Completions."""

    path = "/chat/completions"

    def body(
        self, model: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], manner: Manner
    ) -> JsonObject:
        """The body of a request."""
        options = manner.options
        body: JsonObject = {"model": model, "messages": [_message(item, options.reasoning) for item in messages]}
        if tools:
            strict = options.strict and manner.sends("strict")
            body["tools"] = [_tool(cast(JsonObject, tool), strict) for tool in tools]
            if options.parallel_calls is not None and manner.sends("parallel_tool_calls"):
                body["parallel_tool_calls"] = options.parallel_calls
        if options.stream:
            body["stream"] = True
            if manner.sends("stream_options"):
                body["stream_options"] = {"include_usage": True}
        if options.temperature is not None and manner.sends("temperature"):
            body["temperature"] = options.temperature
        if options.output_tokens is not None:
            body[manner.output_limit] = options.output_tokens
        if options.effort is not None:
            body["reasoning_effort"] = options.effort
        return body

    def assemble(self, events: Iterable[JsonObject]) -> JsonObject:
        """The answer that a stream amounts to."""
        return assemble_chunks(events)

    def reply(self, answer: JsonObject) -> ModelReply:
        """The reply in an answer; raises ServerFault where there is none."""
        choice = next(iter(objects_of(answer.get("choices"))), None)
        error = answer.get("error") or (choice or {}).get("error")
        if error:
            raise fault_in_body(error)
        message = object_of(choice.get("message")) if choice else {}
        if choice is None or not message:
            raise no_reply(f"an answer without a message: {json.dumps(answer)[:300]}")
        text, reasoning, fields = _text_and_reasoning(message)
        finish_reason = text_of(choice.get("finish_reason")) or "stop"
        if finish_reason == "error":
            raise no_reply(f"a reply that ended with an error: {json.dumps(choice)[:300]}")
        return ModelReply(
            text=text,
            reasoning=reasoning,
            reasoning_fields=fields,
            tool_calls=_calls(message),
            usage=usage_of(answer.get("usage"), read="prompt", written="completion"),
            finish_reason="length" if finish_reason.lower() in _CUT_OFF else finish_reason,
            raw=answer,
        )


def _message(message: Message, echo: ReasoningEcho) -> JsonObject:
    match message:
        case SystemMessage() | UserMessage():
            return {"role": message.role, "content": message.text}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
        case AssistantMessage():
            request: JsonObject = {"role": "assistant", "content": message.text}
            if message.tool_calls:
                request["tool_calls"] = [_call(call) for call in message.tool_calls]
            return {**request, **_echoed(message.reasoning, echo)}


def _echoed(fields: JsonObject, echo: ReasoningEcho) -> JsonObject:
    """The reasoning that goes back. The authors of models that think in tags of the text advise against it."""
    if echo is ReasoningEcho.EXCLUDE:
        return {}
    names = REASONING_FIELDS if echo is ReasoningEcho.AUTO else (*REASONING_FIELDS, "content")
    return {name: value for name, value in fields.items() if name in names}


def _call(call: ToolCall) -> JsonValue:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tool(tool: JsonObject, strict: bool) -> JsonValue:
    function = object_of(tool.get("function"))
    schema = strict_schema(object_of(function.get("parameters"))) if strict else None
    return {**tool, "function": {**function, "parameters": schema, "strict": True}} if schema else tool


def _text_and_reasoning(message: JsonObject) -> tuple[str, str, JsonObject]:
    """The text, the reasoning as text, and the fields that go back to the server."""
    text = text_of(message.get("content")) or text_of(message.get("refusal"))
    # An empty text is kept: some servers want each reply's field back, and the same.
    fields = {name: message[name] for name in REASONING_FIELDS if message.get(name) not in (None, [])}
    if any(fields.values()):
        details = "\n".join(
            filter(
                None, (first_text(part, ("text", "summary")) for part in objects_of(fields.get("reasoning_details")))
            )
        )
        return text, first_text(fields, REASONING_FIELDS[:2]) or details, fields
    thoughts, rest = split_thoughts(text)
    return (rest, thoughts, {**fields, "content": text}) if rest != text else (text, "", fields)


def _calls(message: JsonObject) -> tuple[ToolCall, ...]:
    calls = [(call, object_of(call.get("function"))) for call in objects_of(message.get("tool_calls"))]
    return tool_calls(
        (text_of(call.get("id")), text_of(function.get("name")), function.get("arguments"))
        for call, function in calls
        if function
    )
