"""Chat messages as OpenAI's Chat Completions has them: a list, `{"messages": [...]}`, or one of these a line."""

import json

from pydantic import JsonValue

from runs.events import ToolCall
from runs.importing.document import ForeignForm, ForeignFormatError, parse_json, read_form, text_of, without
from runs.importing.draft import Draft, Reply

_REASONING = ("reasoning_content", "reasoning")


class _Function(ForeignForm):
    name: str
    arguments: str | dict[str, JsonValue] = "{}"
    """A string by the standard; some servers write the object itself."""


class _Call(ForeignForm):
    id: str | None = None
    function: _Function


class _Message(ForeignForm):
    role: str
    content: str | list[JsonValue] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


def read_chat(text: str) -> list[Draft]:
    """The conversations of a file.

    Raises:
        ForeignFormatError: it does not have this form; the message says where.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if len(lines) > 1 and _is_whole(lines[0][1]):
        return [_conversation(parse_json(line, number), f"line {number}: ") for number, line in lines]
    return [_conversation(parse_json(text), "")]


def _is_whole(line: str) -> bool:
    """Whether a line is a JSON value by itself, as in a file of one conversation a line."""
    try:
        parse_json(line)
    except ForeignFormatError:
        return False
    return True


def _conversation(value: JsonValue, where: str) -> Draft:
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages:
        raise ForeignFormatError(
            f"{where}a conversation is a list of messages, or an object with such a list, `messages`"
        )
    draft = Draft()
    rest = without(value, "messages", "model", "tools", "task")
    if isinstance(value, dict):
        _read_surroundings(draft, value, rest)
    for number, message in enumerate(messages):
        _read_message(draft, message, f"{where}messages[{number}]")
    if rest:
        draft.keep("", "", rest)
    return draft


def _read_surroundings(draft: Draft, value: dict[str, JsonValue], rest: dict[str, JsonValue]) -> None:
    """What stands beside the messages; into `rest` goes what is of another kind than expected."""
    for name, item in value.items():
        match name, item:
            case "model", str():
                draft.model = item
            case "task", str():
                draft.task = item
            case "tools", list() if all(isinstance(tool, dict) for tool in item):
                draft.tools = tuple(tool for tool in item if isinstance(tool, dict))
            case (("model" | "task" | "tools"), _):
                rest[name] = item
            case _:
                pass


def _read_message(draft: Draft, raw: JsonValue, where: str) -> None:
    message = read_form(_Message, raw, where)
    text = text_of(message.content)
    plain = isinstance(message.content, str) and not without(raw, "role", "content")
    match message.role:
        case "system" | "developer":
            draft.system(text, raw, plain=plain and message.role == "system")
        case "user":
            draft.user(text, raw, plain=plain)
        case "assistant":
            draft.reply(_reply(message, text, raw))
        case "tool":
            rest = without(raw, "role", "tool_call_id", *(("content",) if isinstance(message.content, str) else ()))
            draft.result(message.tool_call_id or "", text, rest, raw)
        case _:
            draft.keep(message.role, text, raw)


def _reply(message: _Message, text: str, raw: JsonValue) -> Reply:
    fields = without(raw)
    reasoning = next((found for name in _REASONING if (found := text_of(fields.get(name)))), "")
    calls = tuple(_call(call, number) for number, call in enumerate(message.tool_calls or ()))
    return Reply(text=text, reasoning=reasoning, tool_calls=calls, raw=fields)


def _call(call: _Call, number: int) -> ToolCall:
    arguments = call.function.arguments
    return ToolCall(
        id=call.id or f"call_{number}",
        name=call.function.name,
        arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
    )
