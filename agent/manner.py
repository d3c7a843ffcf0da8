"""How one client asks its server: the options of the run, less what the server has refused meanwhile."""

import re
from dataclasses import dataclass, replace

from agent.provider_json import JsonObject, object_of, objects_of
from agent.server_faults import Kind, ServerFault
from runs.apis import ReasoningEcho
from runs.config import ModelOptions

OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")
OPTIONAL = ("reasoning.summary", "include", "store", "stream_options", "parallel_tool_calls", "temperature")
"""Fields that nobody asked for by an option, and that a request can do without."""

_EARLIER_REASONING = re.compile(
    r"\breasoning_(content|details)\b|of type .?reasoning|reasoning.? items?\b|\brs_\w+|thinking (mode|blocks?)"
    r"|invalid_encrypted_content|encrypted.{0,3}content.{0,200}(verified|decrypt|issued)",
    re.IGNORECASE | re.DOTALL,
)
"""How servers speak of a reply's reasoning that came back and should not have, or the other way round."""
_FIELD_OF_A_MESSAGE = re.compile(r"['\"`.]reasoning(?![.\w])")
"""The same, where the request itself has no field of that name."""


@dataclass(frozen=True)
class Manner:
    """What to send, as far as it is known by now."""

    options: ModelOptions
    refused: frozenset[str] = frozenset()
    """Fields that are left out, because the server refused them."""
    echo_corrected: bool = False

    @property
    def output_limit(self) -> str:
        """The name under which the limit of a reply is sent in Chat Completions."""
        first = self.options.output_limit
        return next((name for name in (first, *OUTPUT_LIMITS) if name not in self.refused), first)

    def sends(self, name: str) -> bool:
        """Whether an optional field may be sent."""
        return name not in self.refused


@dataclass(frozen=True)
class Correction:
    """A manner that avoids what was refused, and in words how it differs."""

    manner: Manner
    said: str


def correction(manner: Manner, body: JsonObject, fault: ServerFault) -> Correction | None:
    """How to send a refused request again; None where nothing in its body is known to be the reason.

    What the caller asked for by an option is renamed, never left out. Each correction takes something away or turns
    something over for good, so they come to an end.
    """
    if fault.kind not in (Kind.REFUSED, Kind.ADDRESS):
        return None
    return _echo_turned(manner, body, fault) or _limit_renamed(manner, body, fault) or _without(manner, body, fault)


def _echo_turned(manner: Manner, body: JsonObject, fault: ServerFault) -> Correction | None:
    told = f"{fault.param} {fault.text}"
    meant = _EARLIER_REASONING.search(told) or ("reasoning" not in body and _FIELD_OF_A_MESSAGE.search(told))
    if manner.echo_corrected or not meant:
        return None
    excluded = manner.options.reasoning is ReasoningEcho.EXCLUDE
    echo = ReasoningEcho.INCLUDE if excluded else ReasoningEcho.EXCLUDE
    options = manner.options.model_copy(update={"reasoning": echo})
    said = f"{'with' if excluded else 'without'} the earlier reasoning"
    return Correction(replace(manner, options=options, echo_corrected=True), said)


def _limit_renamed(manner: Manner, body: JsonObject, fault: ServerFault) -> Correction | None:
    sent = manner.output_limit
    if sent not in body or not _names(fault, sent) or manner.refused.intersection(OUTPUT_LIMITS):
        return None
    changed = replace(manner, refused=manner.refused | {sent})
    return Correction(changed, f"with {changed.output_limit} for {sent}")


def _without(manner: Manner, body: JsonObject, fault: ServerFault) -> Correction | None:
    dropped = {name for name in OPTIONAL if _is_in(body, name) and _names(fault, name)}
    if "encrypted content is not supported" in fault.text.lower() and "include" in body:
        dropped.add("include")
    if "effort" not in object_of(body.get("reasoning")) and "reasoning" in body and _names(fault, "reasoning"):
        dropped.add("reasoning.summary")
    if _is_strict(body) and re.search(r"\bstrict\b|invalid schema for function", fault.text, re.IGNORECASE):
        dropped.add("strict")
    if not dropped:
        return None
    return Correction(replace(manner, refused=manner.refused | dropped), f"without {', '.join(sorted(dropped))}")


def _names(fault: ServerFault, name: str) -> bool:
    """Whether a fault names a field; one that is a word of English too counts only in quotes."""
    plain = re.escape(name)
    alone = rf"(?<![\w.]){plain}(?![\w.])" if "_" in name or name == "temperature" else rf"['\"`]{plain}['\"`]"
    return fault.param == name or re.search(alone, fault.text) is not None


def _is_in(body: JsonObject, name: str) -> bool:
    outer, _, inner = name.partition(".")
    return outer in body and (not inner or inner in object_of(body[outer]))


def _is_strict(body: JsonObject) -> bool:
    return any(
        tool.get("strict") is not None or object_of(tool.get("function")).get("strict")
        for tool in objects_of(body.get("tools"))
    )
