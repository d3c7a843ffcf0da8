"""A streamed chat completion put together into the answer that would have come without streaming."""

from collections.abc import Iterable

from pydantic import JsonValue

from agent.provider_json import JsonObject, arguments_of, object_of, objects_of
from agent.server_faults import fault_in_body, no_reply

_FRAGMENTS = ("text", "summary", "data")
"""The parts of a reasoning detail that come in pieces."""


def assemble_chunks(chunks: Iterable[JsonObject]) -> JsonObject:
    """One answer from a stream's chunks; raises ServerFault if the stream breaks off before the reply's end.

    Fields that are not known are kept: texts are joined, lists extended, of anything else the last one counts.
    """
    answer: JsonObject = {}
    message: JsonObject = {"role": "assistant", "content": None}
    choice: JsonObject = {"index": 0}
    calls: list[JsonObject] = []
    for chunk in chunks:
        if chunk.get("error"):
            raise fault_in_body(chunk["error"])
        _update(answer, chunk, besides=("choices", "object"))
        for part in objects_of(chunk.get("choices"))[:1]:
            _update(choice, part, besides=("delta", "message"))
            delta = object_of(part.get("delta"))
            for call in objects_of(delta.get("tool_calls")):
                _add_call(calls, call)
            _join(message, delta)
    if not choice.get("finish_reason"):
        raise no_reply("the stream ended before the reply did")
    if calls:
        message["tool_calls"] = [{name: part for name, part in call.items() if name != "index"} for call in calls]
    return {**answer, "object": "chat.completion", "choices": [{**choice, "message": message}]}


def _update(whole: JsonObject, part: JsonObject, besides: tuple[str, ...]) -> None:
    whole.update({name: value for name, value in part.items() if value not in (None, "") and name not in besides})


def _join(message: JsonObject, delta: JsonObject) -> None:
    for name, value in delta.items():
        before = message.get(name)
        if value is None or name in ("role", "tool_calls"):
            continue
        if name == "reasoning_details":
            message[name] = _details(objects_of(before), objects_of(value))
        elif isinstance(before, str) and isinstance(value, str):
            message[name] = before + value
        else:
            message[name] = before + value if isinstance(before, list) and isinstance(value, list) else value


def _details(before: list[JsonObject], added: list[JsonObject]) -> JsonValue:
    """Reasoning details, whose pieces belong together while kind and index stay the same."""
    details = [dict(detail) for detail in before]
    for piece in added:
        last = details[-1] if details else None
        if last is None or any(last.get(name) != piece.get(name) for name in ("type", "index")):
            details.append(dict(piece))
            continue
        for name, value in piece.items():
            earlier = last.get(name)
            joined = isinstance(earlier, str) and isinstance(value, str) and name in _FRAGMENTS
            if value is not None:
                last[name] = f"{earlier}{value}" if joined else value
    return list(details)


def _add_call(calls: list[JsonObject], piece: JsonObject) -> None:
    """Add a piece to the call it belongs to: by its index, unless a new id says that some server counts wrongly."""
    index, new_id = piece.get("index"), piece.get("id")
    same = [call for call in calls if index is None or call.get("index") == index][-1:]
    if not same or (new_id and same[0].get("id") not in (None, "", new_id)):
        same = [{"index": index, "id": None, "type": "function", "function": {"name": "", "arguments": ""}}]
        calls += same
    call, function, added = same[0], object_of(same[0]["function"]), object_of(piece.get("function"))
    _update(call, piece, besides=("index", "function"))
    arguments = added.get("arguments")
    call["function"] = {
        **function,
        "name": function.get("name") or added.get("name") or "",
        "arguments": f"{function.get('arguments') or ''}{arguments_of(arguments) if arguments else ''}",
    }
