"""What spans say, in the names of the conventions for generative AI (open-telemetry/semantic-conventions-genai).

The conventions are in development, so names may change. Beside them: `kernelwright.task`, `kernelwright.verdict` and
`kernelwright.candidate`.
"""

import json
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from runs.config import RunConfig
from runs.events import Event, ModelReplied, RolloutStarted, ToolReturned
from runs.exporting.turns import counted
from runs.summary import call_row
from tools.results import Evaluation, Fault
from tools.verdict import culprit

AGENT = "kernelwright"

Attributes = dict[str, str | int | float | tuple[str, ...]]

_FINISH = {"tool_calls": "tool_call"}
"""Reasons that the conventions' messages call otherwise than Chat Completions does."""
_PORTS = {"http": 80, "https": 443}


def shared_attributes(config: RunConfig, first: RolloutStarted) -> Attributes:
    """What every span of a rollout says."""
    shared: Attributes = {
        "gen_ai.conversation.id": f"{config.id}/{first.rollout}",
        # It tells the flavour of the interface, and every server is spoken to through OpenAI's; a recorded or simulated
        # model has none.
        "gen_ai.provider.name": "openai" if config.base_url or config.model_options else AGENT,
    }
    server = urlsplit(config.base_url or "")
    if server.hostname:
        shared["server.address"] = server.hostname
        shared["server.port"] = server.port or _PORTS.get(server.scheme, 0)
    return shared


def agent_attributes(config: RunConfig, first: RolloutStarted, events: Sequence[Event], *, content: bool) -> Attributes:
    """What the span of a rollout says."""
    replies = [event for event in events if isinstance(event, ModelReplied) and not event.copied]
    usages = [usage for reply in replies if (usage := counted(reply.usage)) is not None]
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": AGENT,
        "gen_ai.request.model": first.model,
        "kernelwright.task": first.task,
        **shared_attributes(config, first),
    }
    if version := config.versions.get("kernelwright"):
        attributes["gen_ai.agent.version"] = version
    if usages:
        attributes["gen_ai.usage.input_tokens"] = sum(usage.input_tokens for usage in usages)
        attributes["gen_ai.usage.output_tokens"] = sum(usage.output_tokens for usage in usages)
    if content:
        attributes["gen_ai.system_instructions"] = json.dumps([_text(first.system_prompt)])
        attributes["gen_ai.input.messages"] = json.dumps([{"role": "user", "parts": [_text(first.opening)]}])
        attributes["gen_ai.tool.definitions"] = json.dumps(first.tools)
    return attributes


def chat_attributes(config: RunConfig, first: RolloutStarted, event: ModelReplied, *, content: bool) -> Attributes:
    """What the span of a reply says."""
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": first.model,
        **shared_attributes(config, first),
    }
    for key, name in (("gen_ai.response.id", "id"), ("gen_ai.response.model", "model")):
        if isinstance(said := event.raw.get(name), str):
            attributes[key] = said
    if event.finish_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (event.finish_reason,)
    if (usage := counted(event.usage)) is not None:
        attributes["gen_ai.usage.input_tokens"] = usage.input_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.output_tokens
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
    if content:
        attributes["gen_ai.output.messages"] = json.dumps([_message(event)])
    return attributes


def tool_attributes(
    config: RunConfig, first: RolloutStarted, event: ToolReturned, arguments: Mapping[str, str], *, content: bool
) -> Attributes:
    """What the span of a call says; `arguments` are those of the reply's calls, by their ids."""
    row = call_row(event)
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": event.tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": event.call_id,
        "kernelwright.verdict": row.outcome.verdict,
        **shared_attributes(config, first),
    }
    if row.candidate is not None:
        attributes["kernelwright.candidate"] = row.candidate
    if fault := _fault_of_ours(event):
        attributes["error.type"] = fault.verdict.value
    if content:
        attributes["gen_ai.tool.call.arguments"] = arguments.get(event.call_id, "")
        attributes["gen_ai.tool.call.result"] = event.reply.text
    return attributes


def _fault_of_ours(event: ToolReturned) -> Fault | None:
    """A fault of the machine or the harness: a wrong candidate is an answer, not an error."""
    result = event.reply.result
    fault = result.fault if isinstance(result, Evaluation) else result
    return fault if isinstance(fault, Fault) and culprit(fault.verdict) in ("machine", "harness") else None


def _message(event: ModelReplied) -> dict[str, object]:
    parts: list[dict[str, object]] = []
    if event.reasoning:
        parts.append({"type": "reasoning", "content": event.reasoning})
    if event.text:
        parts.append(_text(event.text))
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in event.tool_calls
    ]
    reason = event.finish_reason or "stop"
    return {"role": "assistant", "parts": parts, "finish_reason": _FINISH.get(reason, reason)}


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "content": text}
