"""Tests of what is made of a server's counts of tokens."""

from agent.counting import TokenCounts
from agent.model import ModelReply
from agent.provider_json import JsonObject
from runs.events import ToolCall, Usage

CODE = "x" * 2000


def body(turns: int) -> JsonObject:
    return {"messages": [{"role": "user", "content": CODE} for _ in range(turns)]}


def notes(*counted: int) -> list[bool]:
    """For requests that grow by 2000 characters each, which replies carry a note."""
    counts = TokenCounts()
    replies = [ModelReply(text="x", usage=Usage(input_tokens=count, output_tokens=5)) for count in counted]
    return [bool(counts.check(body(turns), reply).note) for turns, reply in enumerate(replies, start=1)]


def test_conversation_that_is_cut_off_in_silence_is_noted() -> None:
    """As Ollama does at its context of 4096 tokens, whatever the model's."""
    assert notes(1500, 3000, 4096, 4096, 4096, 4090) == [False, False, False, True, True, True]


def test_conversation_that_grows_as_it_should_is_not_noted() -> None:
    assert notes(700, 1400, 2100, 2800) == [False] * 4


def test_count_that_falls_after_a_compaction_is_not_noted() -> None:
    counts = TokenCounts()
    usages = [(5, 3500), (2, 1400), (3, 2100)]
    replies = [(turns, ModelReply(text="x", usage=Usage(input_tokens=count))) for turns, count in usages]
    assert [counts.check(body(turns), reply).note for turns, reply in replies] == ["", "", ""]


def test_tokens_that_nobody_counted_are_estimated_and_said_to_be() -> None:
    call = ToolCall(id="a", name="compile_kernel", arguments="y" * 600)
    reply = ModelReply(text="z" * 270, reasoning="w" * 30, tool_calls=(call,))
    usage = TokenCounts().check({"input": CODE}, reply).usage
    # {"input": "xxx..."} is 13 characters longer than the code; three characters make a token.
    assert usage == Usage(input_tokens=671, output_tokens=300, estimated=True)


def test_tokens_that_the_server_counted_are_left_alone() -> None:
    usage = Usage(input_tokens=700, output_tokens=5)
    assert TokenCounts().check(body(1), ModelReply(text="x", usage=usage)).usage == usage
