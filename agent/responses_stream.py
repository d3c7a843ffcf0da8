"""A streamed response put together into the answer that would have come without streaming."""

from collections.abc import Iterable

from agent.provider_json import JsonObject, object_of, text_of
from agent.server_faults import fault_in_body, no_reply

_LAST = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def assemble_events(events: Iterable[JsonObject]) -> JsonObject:
    """One answer from a stream's events; raises ServerFault if the stream breaks off before its last one.

    The last event holds the response. Its items are taken from the events that completed each, because encrypted
    reasoning is whole only there, and because some servers leave them out of the last one. An item is known by its id:
    `transformers serve` gives a message the index of the call before it, and completes it twice.
    """
    items: dict[str, tuple[int, JsonObject]] = {}
    for event in events:
        kind = event.get("type")
        if kind == "response.output_item.done":
            item = object_of(event.get("item"))
            index = event.get("output_index")
            place = index if isinstance(index, int) else len(items)
            name = text_of(item.get("id")) or f"at {place}"
            items[name] = (items.get(name, (place, item))[0], item)
        elif kind == "error" or (kind is None and event.get("error")):
            raise fault_in_body(event.get("error") or event)
        elif kind in _LAST:
            response = object_of(event.get("response"))
            if items:
                in_order = sorted(items.values(), key=lambda placed: placed[0])
                response = {**response, "output": [item for _, item in in_order]}
            return response
    raise no_reply("the stream ended before the reply did")
