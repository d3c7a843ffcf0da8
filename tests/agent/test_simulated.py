"""The simulated model: its odds, what it reads, and that its kernels are what they say."""

import json
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from lineages import past, timed

from agent.model import AssistantMessage, Message, Patience, SystemMessage, ToolMessage, UserMessage
from agent.prompt import opening
from agent.simulated.model import FAULTS, NAIVE, SimulatedModel, Version, proposed, read
from agent.simulated.variant import VALUES, Variant, all_variants, text_of, variants_in
from agent.strategies.choosing import strategy_of
from agent.strategies.strategy import Strategy
from runs.events import ToolCall
from runs.origin import StrategyConfig
from runs.strategy_name import StrategyName
from tools.describe import describe
from tools.results import Fault
from tools.verdict import Verdict

HEAD = (SystemMessage(text="You write kernels."), UserMessage(text="Begin."))
PATIENCE = Patience(seconds=None, on_retry=lambda _: None)


def turn(variant: Variant, speedup: float, *, verified: bool = True) -> list[Message]:
    """A turn in which a variant was tried, told as the tools tell it."""
    text = text_of(variant)
    call = ToolCall(id="c", name="compile_kernel", arguments=json.dumps({"kernel_code": text}))
    wrong = describe(Fault(stage="verify", verdict=Verdict.INCORRECT, message="output is wrong", candidate="0" * 64))
    return [
        AssistantMessage(text="", tool_calls=(call,)),
        ToolMessage(call_id="verify-1", text="correct: 12 comparisons" if verified else wrong),
        ToolMessage(call_id="benchmark-1", text=describe(timed(text, speedup))),
    ]


def draws(messages: Sequence[Message], count: int = 2000) -> list[Variant]:
    return [proposed(random.Random(seed), messages) for seed in range(count)]


def share(found: Sequence[Variant], **values: object) -> float:
    return sum(all(getattr(each, name) == value for name, value in values.items()) for each in found) / len(found)


def test_every_variant_says_what_it_is_and_differs_from_all_others() -> None:
    variants = list(all_variants())
    assert len(variants) == 4 * 4 * 2 * 2 * 2 * 2
    texts = [text_of(variant) for variant in variants]
    assert len(set(texts)) == len(texts)
    assert [variants_in(text) for text in texts] == [[variant] for variant in variants]
    assert variants_in("\n".join(texts)) == variants


def test_a_fault_leaves_the_source_as_it_is_but_for_the_fault() -> None:
    for fault in FAULTS:
        right, wrong = text_of(Variant(packed=True)), text_of(Variant(packed=True, fault=fault))
        changed = [pair for pair in zip(right.splitlines(), wrong.splitlines(), strict=True) if pair[0] != pair[1]]
        # The line of the variant, and the one that is wrong.
        assert len(changed) == 2


def test_the_same_seed_and_conversation_give_the_same_reply() -> None:
    replies = [
        SimulatedModel(seed, number).query(HEAD, (), PATIENCE) for seed, number in [(1, 1), (1, 1), (1, 2), (2, 1)]
    ]
    assert replies[0] == replies[1]
    assert len({reply.model_dump_json() for reply in replies}) > 1
    assert [call.name for call in replies[0].tool_calls] == ["compile_kernel", "verify", "benchmark"]
    (variant,) = variants_in(json.loads(replies[0].tool_calls[0].arguments)["kernel_code"])
    assert f"outputs {variant.outputs}, times {variant.times}" in replies[0].text


def test_first_versions_and_faults_come_at_the_stated_odds() -> None:
    found = draws(HEAD)
    # By hand: a half at once, and of the other half one in two, or one in four.
    assert share(found, threads=False) == pytest.approx(NAIVE + (1 - NAIVE) / 2, abs=0.04)
    assert share(found, times=8) == pytest.approx(NAIVE + (1 - NAIVE) / 4, abs=0.05)
    counts = Counter(each.fault for each in found)
    for fault, odds in FAULTS.items():
        assert counts[fault] / len(found) == pytest.approx(odds, abs=0.03)


def test_it_edits_the_fastest_right_version_or_the_last_one() -> None:
    fast, last = Variant(outputs=8, times=64, threads=True), Variant(outputs=1, times=8, packed=True)
    messages = [*HEAD, *turn(fast, 5.0), *turn(last, 1.0)]
    found = [each.model_copy(update={"fault": ""}) for each in draws(messages)]
    changed = [
        min((sum(getattr(each, name) != getattr(base, name) for name in VALUES), base is last) for base in (fast, last))
        for each in found
    ]
    # One to three changes from either.
    assert {count for count, _ in changed} <= {1, 2, 3}
    assert sum(from_last for _, from_last in changed) / len(changed) == pytest.approx(0.3, abs=0.05)
    assert sum(count == 1 for count, _ in changed) / len(changed) == pytest.approx(0.75, abs=0.05)


def test_what_verify_found_wrong_is_no_version_to_go_on_from_however_fast() -> None:
    wrong, right = Variant(times=64), Variant(times=16)
    parents, versions = read([*HEAD, *turn(wrong, 50.0, verified=False), *turn(right, 1.25)])
    assert parents == []
    assert versions == [Version(right, 800_000.0)]


def test_a_version_that_a_fault_spoilt_may_be_tried_again_but_not_one_that_is_known() -> None:
    known, spoilt = Variant(), Variant(threads=True)
    messages = [
        *HEAD,
        *turn(known, 1.0),
        *turn(spoilt.model_copy(update={"fault": "missing tail"}), 2.0, verified=False),
    ]
    found = [each.model_copy(update={"fault": ""}) for each in draws(messages)]
    assert spoilt in found
    assert known not in found


def test_it_reads_parents_with_their_times_from_the_opening() -> None:
    fast, other = Variant(threads=True, times=32), Variant(packed=True)
    strategy: Strategy = strategy_of(StrategyConfig(name=StrategyName.EVOLVE, rollouts=9, islands=1))
    start = strategy.next_start([past("rollout-1", (text_of(fast), 4.0), (text_of(other), 2.0), island=0)])
    assert start is not None
    parents, versions = read([HEAD[0], UserMessage(text=opening(start))])
    assert sorted(parents, key=lambda parent: parent.median_ns) == [Version(fast, 250_000.0), Version(other, 500_000.0)]
    assert versions == []


def test_two_parents_are_crossed_in_half_of_its_edits() -> None:
    one = Variant(outputs=8, times=64, threads=True, packed=True, taps_outside=True, fixed_taps=True)
    strategy: Strategy = strategy_of(StrategyConfig(name=StrategyName.EVOLVE, rollouts=9, islands=1))
    start = strategy.next_start([past("rollout-1", (text_of(one), 4.0), (text_of(Variant()), 2.0), island=0)])
    assert start is not None
    found = draws([HEAD[0], UserMessage(text=opening(start))])
    booleans = ("threads", "packed", "taps_outside", "fixed_taps")
    ones = [sum(getattr(each, name) for name in booleans) for each in found]
    # Uncrossed, the few edits would have to turn three of the four off: less than one in a hundred. Crossed, which is
    # every other time, at most one of four is on in 5 of 16 cases.
    assert sum(count <= 1 for count in ones) / len(ones) == pytest.approx(5 / 32, abs=0.06)
