"""Tests of the client of Responses against a scripted server."""

import json

import pytest
from model_server import (
    MESSAGES,
    Answer,
    ModelServer,
    called,
    error,
    patience,
    reasoned,
    response,
    running_server,
    said,
    stream,
)
from scripted import compile_call

from agent.model import (
    AssistantMessage,
    ContextOverflowError,
    Message,
    ModelReply,
    QuotaError,
    ToolMessage,
    UserMessage,
)
from agent.served import ServedModel
from runs.events import ToolCall, Usage
from tasks.errors import ModelServerError

pytestmark = pytest.mark.server
server = running_server

CALL = compile_call("code", "a")
SEALED = reasoned(summary=[{"type": "summary_text", "text": "Taps first."}], encrypted_content="gAAA")
SCHEMA = {"type": "object", "properties": {"kernel_code": {"type": "string"}}, "required": ["kernel_code"]}
TOOL = {"type": "function", "function": {"name": "compile_kernel", "description": "Builds.", "parameters": SCHEMA}}


def client(server: ModelServer, **options: object) -> ServedModel:
    return server.client(api="responses", **options)


def answered(reply: ModelReply) -> tuple[Message, ...]:
    """The conversation after a reply whose calls were answered, as a log alone can give it back."""
    stored = ModelReply.model_validate_json(reply.model_dump_json())
    echoed = AssistantMessage(text=stored.text, tool_calls=stored.tool_calls, reasoning=stored.reasoning_fields)
    return (*MESSAGES, echoed, *(ToolMessage(call_id=call.id, text="built") for call in stored.tool_calls))


def sent_input(server: ModelServer) -> list[dict[str, object]]:
    items = server.requests[-1]["input"]
    assert isinstance(items, list)
    return items


def test_request_is_stateless_and_holds_the_whole_conversation(server: ModelServer) -> None:
    server.script = [response(said("x"))]
    client(server, effort="low", summary="auto", output_tokens=900).query(MESSAGES, [TOOL], patience()[0])
    assert server.paths == ["/v1/responses"]
    assert server.requests[0] == {
        "model": "local",
        "instructions": "You write kernels.",
        "input": [{"role": "user", "content": "Begin."}],
        "tools": [
            {
                "type": "function",
                "name": "compile_kernel",
                "description": "Builds.",
                "parameters": SCHEMA,
                "strict": False,
            }
        ],
        "stream": False,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 900,
    }


def test_reply_with_summary_calls_and_usage(server: ModelServer) -> None:
    usage = {
        "input_tokens": 50,
        "output_tokens": 30,
        "input_tokens_details": {"cached_tokens": 20},
        "output_tokens_details": {"reasoning_tokens": 12},
    }
    server.script = [response(SEALED, said("Trying."), called(CALL), usage=usage, x_provider=3)]
    reply = client(server).query(MESSAGES, [], patience()[0])
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("Trying.", "Taps first.", "tool_calls")
    assert reply.tool_calls == (CALL,)
    assert reply.usage == Usage(input_tokens=50, output_tokens=30, cached_tokens=20, reasoning_tokens=12)
    assert reply.raw["x_provider"] == 3


def test_reasoning_itself_is_preferred_to_its_summary(server: ModelServer) -> None:
    item = reasoned(content=[{"type": "reasoning_text", "text": "By taps."}], summary=[{"text": "Short."}])
    server.script = [response(item, said("x"))]
    assert client(server).query(MESSAGES, [], patience()[0]).reasoning == "By taps."


def test_output_items_go_back_as_they_came(server: ModelServer) -> None:
    server.script = [response(SEALED, said("Trying."), called(CALL)), response(said("y"))]
    asked = client(server)
    asked.query(answered(asked.query(MESSAGES, [], patience()[0])), [], patience()[0])
    output = {"type": "function_call_output", "call_id": "a", "output": "built"}
    assert sent_input(server)[1:] == [SEALED, said("Trying."), called(CALL), output]


def test_arguments_that_are_no_json_are_not_sent_back(server: ModelServer) -> None:
    broken = ToolCall(id="a", name="compile_kernel", arguments='{"kernel_code": "import tor')
    server.script = [response(SEALED, called(broken)), response(said("y"))]
    asked = client(server)
    reply = asked.query(MESSAGES, [], patience()[0])
    assert reply.tool_calls == (broken,)
    replayable = reply.model_copy(update={"tool_calls": (broken.model_copy(update={"arguments": "{}"}),)})
    asked.query(answered(replayable), [], patience()[0])
    assert sent_input(server)[1:3] == [SEALED, {**called(broken), "arguments": "{}"}]


@pytest.mark.parametrize(
    "output",
    [
        # Cut off while it reasoned: nothing follows the reasoning, and the server demands that something does.
        (said("Trying."), SEALED),
        # By id alone: a server that keeps nothing does not know it.
        (reasoned(summary=[]), said("Trying.")),
    ],
)
def test_reasoning_that_cannot_go_back_stays_out(server: ModelServer, output: tuple[dict[str, object], ...]) -> None:
    server.script = [response(*output), response(said("y"))]
    asked = client(server)
    asked.query(answered(asked.query(MESSAGES, [], patience()[0])), [], patience()[0])
    assert sent_input(server)[1:] == [{"role": "assistant", "content": "Trying."}]


def test_reasoning_goes_back_by_id_to_a_server_that_keeps_it(server: ModelServer) -> None:
    refusal = error(400, "unsupported_parameter", "Unsupported parameter: 'store'.", param="store")
    by_id = reasoned()
    server.script = [refusal, response(by_id, called(CALL)), response(said("y"))]
    asked = client(server)
    asked.query(answered(asked.query(MESSAGES, [], patience()[0])), [], patience()[0])
    assert sent_input(server)[1:3] == [by_id, called(CALL)]
    assert "store" not in server.requests[-1]


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, message="Item 'rs_1' of type 'reasoning' was provided without its required following item."),
        error(404, message="Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
        error(400, "invalid_encrypted_content", "The encrypted content gAAA could not be verified."),
    ],
)
def test_reasoning_that_the_server_refuses_stays_out_from_then_on(server: ModelServer, refusal: Answer) -> None:
    server.script = [response(SEALED, said("Trying."), called(CALL)), refusal, response(said("y")), response(said("z"))]
    asked = client(server, summary="auto")
    history = answered(asked.query(MESSAGES, [], patience()[0]))
    assert asked.query(history, [], patience()[0]).text == "y"
    assert asked.query(history, [], patience()[0]).text == "z"
    for request in server.requests[2:]:
        assert request["reasoning"] == {"summary": "auto"}
        assert request["input"] == [
            {"role": "user", "content": "Begin."},
            {"role": "assistant", "content": "Trying."},
            {"type": "function_call", "call_id": "a", "name": "compile_kernel", "arguments": CALL.arguments},
            {"type": "function_call_output", "call_id": "a", "output": "built"},
        ]


def test_conversation_without_output_items_is_sent_plainly(server: ModelServer) -> None:
    """After a run that was begun by Chat Completions."""
    history: tuple[Message, ...] = (
        *MESSAGES,
        AssistantMessage(text="", tool_calls=(CALL,), reasoning={"reasoning_content": "b"}),
        ToolMessage(call_id="a", text="built"),
        UserMessage(text="Go on."),
    )
    server.script = [response(said("x"))]
    client(server).query(history, [], patience()[0])
    assert [item.get("type") or item["role"] for item in sent_input(server)] == [
        "user",
        "function_call",
        "function_call_output",
        "user",
    ]
    assert "reasoning_content" not in json.dumps(server.requests[0])


@pytest.mark.parametrize(
    ("details", "expected"),
    [({"reason": "max_output_tokens"}, "length"), ({"reason": "content_filter"}, "content_filter")],
)
def test_incomplete_responses_say_why(server: ModelServer, details: dict[str, object], expected: str) -> None:
    server.script = [response(said("import tor"), status="incomplete", incomplete_details=details)]
    assert client(server).query(MESSAGES, [], patience()[0]).finish_reason == expected


@pytest.mark.parametrize("streaming", [False, True])
def test_failures_inside_the_body_that_pass_are_retried(server: ModelServer, streaming: bool) -> None:
    fault = {"code": "rate_limit_exceeded", "message": "Rate limit reached. Please try again in 50ms."}
    failed = response(status="failed", error=fault)
    good = response(said("x"))
    if streaming:
        failed, good = stream({"type": "response.failed", "response": failed.body}), finished(good)
    server.script = [failed, good]
    waiting, retries = patience()
    assert client(server, stream=streaming).query(MESSAGES, [], waiting).text == "x"
    assert [retry.wait_s for retry in retries] == [0.05]
    assert "rate_limit_exceeded" in retries[0].error


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"code": "insufficient_quota", "message": "You exceeded your current quota."}, QuotaError),
        ({"code": "context_length_exceeded", "message": "Your input is too big."}, ContextOverflowError),
        ({"code": "invalid_prompt", "message": "Flagged."}, ModelServerError),
    ],
)
def test_failures_inside_the_body_that_do_not_pass(
    server: ModelServer, fault: dict[str, str], expected: type[Exception]
) -> None:
    server.script = [response(status="failed", error=fault), stream({"type": "error", **fault})]
    for streaming in (False, True):
        waiting, retries = patience()
        with pytest.raises(expected, match=fault["code"]):
            client(server, stream=streaming).query(MESSAGES, [], waiting)
        assert retries == []
    assert len(server.requests) == 2


def finished(answer: Answer) -> Answer:
    """A whole answer as the last event of a stream."""
    return stream({"type": "response.created", "response": {}}, {"type": "response.completed", "response": answer.body})


def test_stream_takes_items_from_the_events_that_completed_them(server: ModelServer) -> None:
    """Encrypted reasoning may be cut in the event that announces the item, and missing in the last one."""
    added = {"type": "response.output_item.added", "output_index": 0, "item": reasoned(encrypted_content="gA")}
    done = [
        {"type": "response.output_item.done", "output_index": position, "item": item}
        for position, item in enumerate((SEALED, said("Trying."), called(CALL)))
    ]
    delta = {"type": "response.output_text.delta", "output_index": 1, "delta": "Trying."}
    last = {"type": "response.completed", "response": response().body}
    server.script = [stream(added, done[2], delta, done[0], done[1], last, done=False), response(said("y"))]
    reply = client(server, stream=True).query(MESSAGES, [], patience()[0])
    assert (reply.text, reply.reasoning, reply.tool_calls) == ("Trying.", "Taps first.", (CALL,))
    assert reply.usage == Usage(input_tokens=50, output_tokens=7)
    assert server.requests[0]["stream"] is True
    client(server).query(answered(reply), [], patience()[0])
    assert sent_input(server)[1] == SEALED


def test_stream_whose_items_share_an_index_keeps_them_all(server: ModelServer) -> None:
    """As `transformers serve` 5.24 numbers them, which completes the message twice."""
    numbered = [(0, SEALED), (1, said("Trying.")), (2, called(CALL)), (2, said("Trying."))]
    done = [{"type": "response.output_item.done", "output_index": place, "item": item} for place, item in numbered]
    server.script = [stream(*done, {"type": "response.completed", "response": response().body})]
    reply = client(server, stream=True).query(MESSAGES, [], patience()[0])
    assert (reply.text, reply.reasoning, reply.tool_calls) == ("Trying.", "Taps first.", (CALL,))


def test_response_without_a_call_id_gets_one_that_its_result_names_too(server: ModelServer) -> None:
    nameless = {"type": "function_call", "name": "submit", "arguments": "{}"}
    server.script = [response(nameless), response(said("y"))]
    asked = client(server)
    asked.query(answered(asked.query(MESSAGES, [], patience()[0])), [], patience()[0])
    assert [item["call_id"] for item in sent_input(server)[1:]] == ["call_0", "call_0"]
