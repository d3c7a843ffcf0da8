"""Tests of the client of Chat Completions against a scripted server."""

import json
from pathlib import Path

import pytest
from model_server import (
    MESSAGES,
    Answer,
    ModelServer,
    calls_of,
    chunk,
    completion,
    error,
    patience,
    running_server,
    stream,
)
from scripted import ScriptedTools, compile_call
from scripted import briefing as sample_briefing

from agent.budget import Budget
from agent.loop import Rollout
from agent.model import AssistantMessage, Message, ToolMessage
from runs.config import Limits
from runs.events import EndReason, ModelReplied, Retried, RolloutStarted, ToolCall, Usage
from runs.store import RunDirectory
from tasks.errors import ModelServerError
from tasks.spec import Target

pytestmark = pytest.mark.server
server = running_server

SCHEMA = {"type": "object", "properties": {"kernel_code": {"type": "string"}}, "required": ["kernel_code"]}
FUNCTION = {"name": "compile_kernel", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
LOOSE_TOOL = {
    "type": "function",
    "function": {"name": "profile", "parameters": {"type": "object", "properties": {"calls": {"type": "integer"}}}},
}


def last_message(server: ModelServer) -> object:
    messages = server.requests[-1]["messages"]
    assert isinstance(messages, list)
    return messages[-1]


def test_reply_with_reasoning_calls_and_usage(server: ModelServer) -> None:
    details = {
        "prompt_tokens": 50,
        "completion_tokens": 30,
        "total_tokens": 80,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }
    message = {"content": "Trying.", "reasoning_content": "Taps first.", **calls_of(compile_call("code", "a"))}
    server.script = [completion(message, "tool_calls", usage=details, x_provider={"seed": 3})]
    tools = [{"type": "function", "function": {"name": "submit"}}]
    reply = server.client().query(MESSAGES, tools, patience()[0])
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("Trying.", "Taps first.", "tool_calls")
    assert reply.tool_calls == (compile_call("code", "a"),)
    assert reply.usage == Usage(input_tokens=50, output_tokens=30, cached_tokens=20, reasoning_tokens=12)
    assert reply.raw["x_provider"] == {"seed": 3}
    assert server.requests[0] == {
        "model": "local",
        "messages": [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": "Begin."}],
        "tools": tools,
    }
    assert server.keys == ["Bearer secret"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning": "by its new name"}, "by its new name"),
        (
            {"reasoning_details": [{"type": "reasoning.text", "text": "in parts"}, {"summary": "and more"}]},
            "in parts\nand more",
        ),
        ({"reasoning_content": ""}, ""),
        ({}, ""),
    ],
)
def test_reasoning_under_its_other_names(server: ModelServer, fields: dict[str, object], expected: str) -> None:
    server.script = [completion({"content": "x", **fields})]
    reply = server.client().query(MESSAGES, [], patience()[0])
    assert reply.reasoning == expected
    assert reply.reasoning_fields == fields


def test_reasoning_goes_back_under_the_name_it_came_with(server: ModelServer) -> None:
    server.script = [completion({"content": "x"})]
    call = compile_call("code", "a")
    history: tuple[Message, ...] = (
        *MESSAGES,
        AssistantMessage(text="Trying.", tool_calls=(call,), reasoning={"reasoning_content": "Taps first."}),
        ToolMessage(call_id="a", text="built"),
    )
    server.client().query(history, [], patience()[0])
    messages = server.requests[0]["messages"]
    assert isinstance(messages, list)
    assert messages[2] == {
        "role": "assistant",
        "content": "Trying.",
        "reasoning_content": "Taps first.",
        **calls_of(call),
    }
    assert messages[3] == {"role": "tool", "tool_call_id": "a", "content": "built"}


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, message="reasoning_content is not allowed in messages"),
        error(400, message="property 'messages.2.reasoning' is unsupported"),
        Answer({"detail": [{"type": "extra_forbidden", "loc": ["body", "messages", 2, "reasoning"]}]}, 422),
    ],
)
def test_server_that_refuses_its_reasoning_gets_none(server: ModelServer, refusal: Answer) -> None:
    server.script = [refusal, completion({"content": "x"}), completion({"content": "y"})]
    history: tuple[Message, ...] = (*MESSAGES, AssistantMessage(text="a", reasoning={"reasoning_content": "b"}))
    chat = server.client()
    assert chat.query(history, [], patience()[0]).text == "x"
    assert chat.query(history, [], patience()[0]).text == "y"
    assert ["reasoning_content" in json.dumps(request) for request in server.requests] == [True, False, False]


def test_calls_without_usable_ids_get_their_own(server: ModelServer) -> None:
    nameless = ToolCall(id="", name="", arguments="{}")
    server.script = [completion(calls_of(compile_call("a", "same"), compile_call("b", "same"), nameless))]
    reply = server.client().query(MESSAGES, [], patience()[0])
    assert [call.id for call in reply.tool_calls] == ["same", "call_1", "call_2"]
    assert reply.tool_calls[2].name == "unnamed"


def test_arguments_sent_as_an_object_become_text(server: ModelServer) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "compile_kernel", "arguments": {"kernel_code": "x"}}}
    server.script = [completion({"tool_calls": [call]})]
    reply = server.client().query(MESSAGES, [], patience()[0])
    assert reply.tool_calls[0].arguments == '{"kernel_code": "x"}'


def test_thoughts_in_the_text_are_split_off_and_not_sent_back(server: ModelServer) -> None:
    server.script = [completion({"content": "<think>\nTaps first.\n</think>\n\nTrying."}), completion({"content": "x"})]
    client = server.client()
    reply = client.query(MESSAGES, [], patience()[0])
    assert (reply.text, reply.reasoning) == ("Trying.", "Taps first.")
    client.query((*MESSAGES, AssistantMessage(text=reply.text, reasoning=reply.reasoning_fields)), [], patience()[0])
    assert last_message(server) == {"role": "assistant", "content": "Trying."}


def test_thoughts_in_the_text_go_back_in_the_text_if_that_is_wanted(server: ModelServer) -> None:
    text = "<think>Taps first.</think>Trying."
    server.script = [completion({"content": text}), completion({"content": "x"})]
    client = server.client(reasoning="include")
    reply = client.query(MESSAGES, [], patience()[0])
    client.query((*MESSAGES, AssistantMessage(text=reply.text, reasoning=reply.reasoning_fields)), [], patience()[0])
    assert last_message(server) == {"role": "assistant", "content": text}


def test_reasoning_is_kept_back_if_that_is_wanted_until_the_server_misses_it(server: ModelServer) -> None:
    demand = error(400, message="The `reasoning_content` in the thinking mode must be passed back to the API.")
    server.script = [completion({"content": "x"}), demand, completion({"content": "y"})]
    history: tuple[Message, ...] = (*MESSAGES, AssistantMessage(text="a", reasoning={"reasoning_content": "b"}))
    client = server.client(reasoning="exclude")
    waiting, retries = patience()
    client.query(history, [], waiting)
    assert client.query(history, [], waiting).text == "y"
    assert ["reasoning_content" in json.dumps(request) for request in server.requests] == [False, False, True]
    assert (len(retries), retries[0].wait_s) == (1, 0.0)
    assert retries[0].error.endswith("sent again with the earlier reasoning")


def test_reasoning_policy_is_corrected_once_only(server: ModelServer) -> None:
    refusal = error(400, message="reasoning_content is not allowed in messages")
    server.script = [refusal, refusal]
    history: tuple[Message, ...] = (*MESSAGES, AssistantMessage(text="a", reasoning={"reasoning_content": "b"}))
    with pytest.raises(ModelServerError, match="refused the request"):
        server.client().query(history, [], patience()[0])
    assert len(server.requests) == 2


def test_output_items_of_the_other_interface_are_not_sent(server: ModelServer) -> None:
    """A run that is resumed may ask by another interface."""
    server.script = [completion({"content": "x"})]
    history: tuple[Message, ...] = (
        *MESSAGES,
        AssistantMessage(text="a", reasoning={"output": [{"type": "reasoning"}]}),
    )
    server.client().query(history, [], patience()[0])
    assert last_message(server) == {"role": "assistant", "content": "a"}


@pytest.mark.parametrize("streaming", [False, True])
def test_halves_of_characters_are_joined_or_replaced(server: ModelServer, streaming: bool) -> None:
    """A stream may cut an emoji in two, which neither a request nor a transcript can hold."""
    whole = completion({"content": "\ud83d\ude80 \ud83d"}, x_odd="\ude80")
    halves = stream(chunk(content="\ud83d"), chunk(content="\ude80 "), chunk("stop", content="\ud83d"))
    server.script = [halves if streaming else whole]
    history: tuple[Message, ...] = (*MESSAGES, AssistantMessage(text="a \udc80 b"))
    reply = server.client(stream=streaming).query(history, [], patience()[0])
    assert reply.text == "🚀 \ufffd"
    assert last_message(server) == {"role": "assistant", "content": "a \ufffd b"}
    assert reply.model_validate_json(reply.model_dump_json()) == reply


@pytest.mark.parametrize("said", ["max_tokens", "MAX_TOKENS", "model_length", "length"])
def test_every_word_for_cut_off_becomes_length(server: ModelServer, said: str) -> None:
    server.script = [completion({"content": "import tor"}, said)]
    assert server.client().query(MESSAGES, [], patience()[0]).finish_reason == "length"


def test_cached_tokens_are_never_more_than_the_input(server: ModelServer) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 20}}
    server.script = [completion({"content": "x"}, usage=usage)]
    reply = server.client().query(MESSAGES, [], patience()[0])
    assert reply.usage == Usage(input_tokens=5, output_tokens=2, cached_tokens=5)


def test_tokens_that_the_server_does_not_count_are_estimated(server: ModelServer) -> None:
    server.script = [completion({"content": "x" * 90}, usage=None)]
    usage = server.client().query(MESSAGES, [], patience()[0]).usage
    assert (usage.output_tokens, usage.estimated) == (30, True)
    assert usage.input_tokens > 0


def test_options_are_sent_under_their_names(server: ModelServer) -> None:
    server.script = [completion({"content": "x"})]
    options = {"temperature": 0.6, "output_tokens": 900, "effort": "low", "parallel_calls": False, "strict": True}
    server.client(**options).query(MESSAGES, [TOOL, LOOSE_TOOL], patience()[0])
    request = {name: value for name, value in server.requests[0].items() if name not in ("model", "messages")}
    strict = {**FUNCTION, "parameters": {**SCHEMA, "additionalProperties": False}, "strict": True}
    assert request == {
        "temperature": 0.6,
        "max_tokens": 900,
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "tools": [{"type": "function", "function": strict}, LOOSE_TOOL],
    }


def test_rollout_against_a_server_with_a_fault_and_broken_arguments(server: ModelServer, tmp_path: Path) -> None:
    """R27: the arguments are cut, and the server says that they are not."""
    broken = ToolCall(id="x", name="compile_kernel", arguments='{"kernel_code": "import tor')
    server.script = [
        error(429, retry_after_ms="20"),
        completion({"reasoning_content": "Start simple.", **calls_of(broken)}, "tool_calls"),
        completion({"content": "Again.", **calls_of(compile_call("code", "y"))}, "tool_calls"),
        completion({**calls_of(ToolCall(id="z", name="submit", arguments="{}"))}, "tool_calls"),
    ]
    started = RolloutStarted(
        turn=0,
        rollout="rollout-1",
        task="causal_conv",
        target=Target.CPU,
        model="local",
        limits=Limits(turns=5),
        system_prompt="You write kernels.",
        opening="Begin.",
        tools=(),
        briefing=sample_briefing(),
    )
    (tmp_path / "candidates").mkdir()
    run = RunDirectory(tmp_path)
    rollout = Rollout(
        run, started, server.client(), ScriptedTools(), Budget(Limits(turns=5), None), watch=lambda _: None
    )
    assert rollout.run().reason is EndReason.SUBMITTED
    events = run.events("rollout-1")
    replies = [event for event in events if isinstance(event, ModelReplied)]
    assert replies[0].reasoning == "Start simple."
    assert replies[0].tool_calls == (broken,)
    assert [event.wait_s for event in events if isinstance(event, Retried)] == [0.02]
    last = server.requests[-1]["messages"]
    assert isinstance(last, list)
    assert [message["role"] for message in last] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert last[2]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert last[2]["reasoning_content"] == "Start simple."
    assert last[3]["tool_call_id"] == "x"
