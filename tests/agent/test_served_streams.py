"""Tests of replies that come as streams: put together, cut off, and ended by an error."""

import pytest
from model_server import (
    MESSAGES,
    Answer,
    ModelServer,
    calls_of,
    chunk,
    patience,
    response,
    running_server,
    said,
    stream,
)
from scripted import compile_call

from agent.model import ContextOverflowError, QuotaError
from runs.events import ToolCall, Usage
from tasks.errors import ModelServerError

pytestmark = pytest.mark.server
server = running_server

CHUNKS = [chunk(role="assistant"), chunk(content="Half of ")]
WHOLE = stream(chunk(content="x"), chunk("stop"))
EVENTS: list[object] = [
    {"type": "response.created", "response": {}},
    {"type": "response.output_text.delta", "delta": "Half"},
]
FINISHED = stream({"type": "response.completed", "response": response(said("x")).body})


def test_stream_becomes_the_reply_that_would_have_come_whole(server: ModelServer) -> None:
    pieces = [{"index": 0, "id": "a", "type": "function", "function": {"name": "compile_kernel", "arguments": ""}}]
    more = [{"index": 0, "function": {"arguments": part}} for part in ('{"kernel_code"', ': "code"}')]
    second = [{"index": 1, "id": "b", "function": {"name": "submit", "arguments": "{}"}}]
    server.script = [
        stream(
            ": keep-alive\n\n",
            chunk(role="assistant", content=""),
            chunk(reasoning_content="Taps "),
            chunk(reasoning_content="first."),
            chunk(content="Try"),
            chunk(content="ing."),
            chunk(tool_calls=pieces),
            *(chunk(tool_calls=[piece]) for piece in more),
            chunk(tool_calls=second),
            chunk("tool_calls"),
            {**chunk(usage={"prompt_tokens": 50, "completion_tokens": 30}), "x_provider": {"seed": 3}},
        )
    ]
    reply = server.client(stream=True).query(MESSAGES, [], patience()[0])
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("Trying.", "Taps first.", "tool_calls")
    assert reply.tool_calls == (compile_call("code", "a"), ToolCall(id="b", name="submit", arguments="{}"))
    assert reply.usage == Usage(input_tokens=50, output_tokens=30)
    assert reply.reasoning_fields == {"reasoning_content": "Taps first."}
    assert (reply.raw["id"], reply.raw["object"], reply.raw["x_provider"]) == (
        "chatcmpl-1",
        "chat.completion",
        {"seed": 3},
    )
    assert (server.requests[0]["stream"], server.requests[0]["stream_options"]) == (True, {"include_usage": True})


def test_streamed_calls_that_a_server_counts_wrongly_stay_apart(server: ModelServer) -> None:
    calls = [compile_call("first", "a"), compile_call("second", "b")]
    whole = [{"index": 0, **call} for call in calls_of(*calls)["tool_calls"]]
    server.script = [stream(*(chunk(tool_calls=[call]) for call in whole), chunk("tool_calls"))]
    assert server.client(stream=True).query(MESSAGES, [], patience()[0]).tool_calls == tuple(calls)


def test_streamed_reasoning_details_are_joined_by_kind_and_index(server: ModelServer) -> None:
    def detail(**more: object) -> dict[str, object]:
        return chunk(reasoning_details=[{"type": "reasoning.text", "index": 0, **more}])

    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "xyz"}
    last = chunk(reasoning_details=[sealed])
    server.script = [
        stream(detail(text="Taps "), detail(text="first.", signature="s"), last, chunk("stop", content="x"))
    ]
    reply = server.client(stream=True).query(MESSAGES, [], patience()[0])
    first = {"type": "reasoning.text", "index": 0, "text": "Taps first.", "signature": "s"}
    assert reply.reasoning_fields == {"reasoning_details": [first, sealed]}
    assert reply.reasoning == "Taps first."


@pytest.mark.parametrize(
    ("api", "broken", "whole"),
    [
        # The connection is dropped; the SDK alone would neither retry nor, in older versions, wrap this.
        ("chat", stream(*CHUNKS, drops=True, done=False), WHOLE),
        ("responses", stream(*EVENTS, drops=True, done=False), FINISHED),
        # The stream ends in good order, but the reply does not.
        ("chat", stream(*CHUNKS), WHOLE),
        ("responses", stream(*EVENTS), FINISHED),
        ("chat", stream(), WHOLE),
        # The server says that it failed, in one of the forms for that.
        ("chat", stream(*CHUNKS, {"error": {"message": "worker died", "code": 500}}), WHOLE),
        ("chat", stream(*CHUNKS, {"error": "worker died"}), WHOLE),
        ("responses", stream(*EVENTS, {"type": "error", "code": "server_error", "message": "worker died"}), FINISHED),
        ("responses", stream(*EVENTS, {"error": {"message": "worker died"}}), FINISHED),
        # Half a line.
        ("chat", stream(*CHUNKS, 'data: {"choices": [\n\n'), WHOLE),
    ],
)
def test_stream_that_breaks_off_is_a_retry(server: ModelServer, api: str, broken: Answer, whole: Answer) -> None:
    server.script = [broken, whole]
    waiting, retries = patience()
    assert server.client(api=api, stream=True).query(MESSAGES, [], waiting).text == "x"
    assert len(retries) == 1


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"message": "You are out of credit", "code": "insufficient_quota"}, QuotaError),
        ({"message": "This model's maximum context length is 4096", "code": 400}, ContextOverflowError),
        ({"message": "bad tool", "type": "invalid_request_error"}, ModelServerError),
    ],
)
def test_stream_that_ends_in_an_error_that_does_not_pass(
    server: ModelServer, fault: dict[str, object], expected: type[Exception]
) -> None:
    server.script = [stream(*CHUNKS, {"error": fault})]
    with pytest.raises(expected):
        server.client(stream=True).query(MESSAGES, [], patience()[0])
    assert len(server.requests) == 1
