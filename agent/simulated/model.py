"""The simulated model: reads a conversation as a model would, and replies with an edit drawn by the odds below.

It stands in for a model where strategies are to be compared without a server: what it proposes is built, verified and
measured for real. The odds are stated, not fitted to any model: what it shows is how a strategy spends turns on a
writer that edits blindly, not how well a certain model writes kernels. It never submits; its rollouts end at a limit.
"""

import json
import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from agent.model import AssistantMessage, Message, ModelReply, Patience, ToolDefinition, ToolMessage, UserMessage
from agent.simulated.variant import VALUES, Fault, Variant, text_of, variants_in
from runs.events import ToolCall

NAME = "simulated"

NAIVE = 0.5
"""The odds of each parameter to be the simplest one in a first version; else any value is as likely."""
LAST = 0.3
"""The odds of going on from the last right version; else from the fastest one it knows."""
CROSSED = 0.5
"""The odds of taking each parameter from either of two candidates in the opening, where there are two."""
EDITS = {1: 0.75, 2: 0.2, 3: 0.05}
"""The odds of so many parameters being changed at once."""
NEXT_VALUE = 0.7
"""The odds of a changed size to become the next one up or down; else any other."""
FAULTS: dict[Fault, float] = {"bracket left open": 0.1, "wrong tap order": 0.1, "missing tail": 0.1}
"""The odds of each fault in a version."""
_REDRAWS = 20
"""How often it thinks again where it knows a version already. One that a fault spoilt may well be tried again."""
_UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_TIMED = re.compile(r"\b([\d.]+(?:e[+-]?\d+)?) (ns|us|ms|s) a call \(median\)")
_PARENT = re.compile(r"^# .*: `\w+`, ([\d.]+(?:e[+-]?\d+)?) us, ", re.M)


class Version(NamedTuple):
    """A right version that the conversation tells of."""

    variant: Variant
    median_ns: float


class SimulatedModel:
    """Deterministic: the same seed and number, and the same conversation, give the same reply. No tokens are spent."""

    def __init__(self, seed: int, number: int) -> None:
        """`number` tells the rollouts of a run apart."""
        self._seed = seed
        self._number = number

    @property
    def name(self) -> str:
        """Always `simulated`."""
        return NAME

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:  # noqa: ARG002
        """The next version, with calls that build, verify and time it."""
        turn = sum(isinstance(message, AssistantMessage) for message in messages) + 1
        draw = random.Random(f"{self._seed}/{self._number}/{turn}")
        variant = proposed(draw, messages)
        calls = (
            _call("compile_kernel", turn, kernel_code=text_of(variant)),
            _call("verify", turn),
            _call("benchmark", turn),
        )
        said = ", ".join(f"{name} {value}" for name, value in variant.model_dump(exclude={"fault"}).items())
        return ModelReply(text=f"Next I try {said}.", tool_calls=calls, finish_reason="tool_calls")


def proposed(draw: random.Random, messages: Sequence[Message]) -> Variant:
    """The next version, drawn by the odds above."""
    parents, versions = read(messages)
    known = {version.variant for version in (*parents, *versions)}
    fault = draw.choices(["", *FAULTS], [1 - sum(FAULTS.values()), *FAULTS.values()])[0]
    variant = _edited(draw, parents, versions) if known else _first(draw)
    for _ in range(_REDRAWS):
        if variant not in known:
            break
        variant = _edited(draw, parents, versions)
    return variant.model_copy(update={"fault": fault})


def read(messages: Sequence[Message]) -> tuple[list[Version], list[Version]]:
    """What a conversation tells: the candidates of the opening, and right versions since."""
    parents: list[Version] = []
    versions: list[Version] = []
    compiled: list[Variant] = []
    right = False
    for message in messages:
        if isinstance(message, UserMessage):
            times = [1e3 * float(found) for found in _PARENT.findall(message.text)]
            parents += [Version(*pair) for pair in zip(variants_in(message.text), times, strict=True)]
        elif isinstance(message, AssistantMessage):
            compiled += [found for call in message.tool_calls for found in variants_in(_code(call))]
        elif isinstance(message, ToolMessage) and message.call_id.startswith("verify"):
            # What is wrong on other shapes may well be timed on this one.
            right = message.text.startswith("correct")
        elif isinstance(message, ToolMessage) and right and (timed := _TIMED.search(message.text)) is not None:
            versions.append(Version(compiled[-1], float(timed[1]) * _UNITS_NS[timed[2]]))
    return parents, versions


def _first(draw: random.Random) -> Variant:
    chosen = {name: values[0] if draw.random() < NAIVE else draw.choice(values) for name, values in VALUES.items()}
    return Variant.model_validate(chosen)


def _edited(draw: random.Random, parents: Sequence[Version], versions: Sequence[Version]) -> Variant:
    known = [*parents, *versions]
    if versions and draw.random() < LAST:
        base = versions[-1].variant
    elif len(parents) > 1 and draw.random() < CROSSED:
        sides = [parent.variant.model_dump() for parent in parents]
        base = Variant.model_validate({name: draw.choice(sides)[name] for name in VALUES})
    else:
        base = min(known, key=lambda version: version.median_ns).variant
    count = draw.choices(list(EDITS), list(EDITS.values()))[0]
    changes = {name: _changed(draw, name, getattr(base, name)) for name in draw.sample(list(VALUES), count)}
    return base.model_copy(update={"fault": "", **changes})


def _changed(draw: random.Random, name: str, value: object) -> object:
    values = VALUES[name]
    at = values.index(value)
    if draw.random() < NEXT_VALUE:
        return draw.choice(values[max(0, at - 1) : at] + values[at + 1 : at + 2])
    return draw.choice(values[:at] + values[at + 1 :])


def _call(name: str, turn: int, **arguments: object) -> ToolCall:
    return ToolCall(id=f"{name}-{turn}", name=name, arguments=json.dumps(arguments))


def _code(call: ToolCall) -> str:
    found = json.loads(call.arguments).get("kernel_code", "")
    assert isinstance(found, str)
    return found
