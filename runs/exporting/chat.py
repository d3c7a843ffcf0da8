"""Rollouts as chat messages for fine-tuning: one conversation a line, with what it was worth as its reward.

A line is an object: `messages` in the form of Chat Completions, with the reasoning as `reasoning_content` and arguments
as the model wrote them, whether or not they are JSON; `tools`; `task`, `target`, `model`, `run`, `rollout`; `reward`
(`runs.exporting.reward.Reward`, or null). The whole conversation is written, also what was later removed from it.
"""

import json
from collections.abc import Iterator, Sequence

from runs.events import Event, Imported, ModelReplied, Nudged, RolloutStarted, ToolReturned
from runs.exporting.reward import reward_of
from runs.exporting.turns import Turn, parts_of
from runs.summary import started, summarize

_SPEAKERS = ("system", "developer", "user")
"""Whose words between replies are part of the conversation; the rest of an imported file is not."""


def chat_line(run: str, events: Sequence[Event]) -> str:
    """One rollout as one line of JSON."""
    first = started(events)
    reward = reward_of(summarize(events))
    return json.dumps(
        {
            "messages": list(_messages(first, events)),
            "tools": list(first.tools),
            "task": first.task,
            "target": first.target,
            "model": first.model,
            "run": run,
            "rollout": first.rollout,
            "reward": None if reward is None else reward.model_dump(mode="json"),
        }
    )


def _messages(first: RolloutStarted, events: Sequence[Event]) -> Iterator[dict[str, object]]:
    if first.system_prompt:
        yield {"role": "system", "content": first.system_prompt}
    if first.opening:
        yield {"role": "user", "content": first.opening}
    for part in parts_of(events):
        match part:
            case Turn():
                yield _reply(part.reply)
                yield from map(_result, part.results)
            case Nudged():
                yield {"role": "user", "content": part.text}
            case Imported() if part.role in _SPEAKERS:
                yield _imported(part)


def _reply(event: ModelReplied) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": event.text}
    if event.reasoning:
        message["reasoning_content"] = event.reasoning
    if event.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in event.tool_calls
        ]
    return message


def _result(event: ToolReturned) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": event.call_id, "content": event.reply.text}


def _imported(event: Imported) -> dict[str, object]:
    """A message as the file had it, where it was one; else its text."""
    if isinstance(event.raw, dict) and "role" in event.raw:
        return {**event.raw}
    return {"role": event.role, "content": event.text}
