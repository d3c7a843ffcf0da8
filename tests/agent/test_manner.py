"""Tests of how requests correct themselves: what a server refuses by name is avoided from then on."""

import pytest
from model_server import (
    MESSAGES,
    Answer,
    ModelServer,
    chunk,
    completion,
    error,
    patience,
    response,
    running_server,
    said,
    stream,
)

from tasks.errors import ModelServerError

pytestmark = pytest.mark.server
server = running_server

SCHEMA = {"type": "object", "properties": {"kernel_code": {"type": "string"}}, "required": ["kernel_code"]}
TOOLS = [{"type": "function", "function": {"name": "compile_kernel", "parameters": SCHEMA}}]


@pytest.mark.parametrize(
    ("options", "refusal", "gone"),
    [
        (
            {"temperature": 0.6},
            error(
                400,
                "unsupported_value",
                "Unsupported value: 'temperature' does not support 0.6 with this model. Only the default (1) value is "
                "supported.",
                param="temperature",
            ),
            "temperature",
        ),
        (
            {"parallel_calls": False},
            error(400, message="Unsupported parameter: 'parallel_tool_calls' is not supported with this model."),
            "parallel_tool_calls",
        ),
        (
            {"stream": True},
            Answer(
                {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "no extras"}]}, 422
            ),
            "stream_options",
        ),
    ],
)
def test_optional_field_that_is_refused_is_left_out_from_then_on(
    server: ModelServer, options: dict[str, object], refusal: Answer, gone: str
) -> None:
    good = stream(chunk(content="x"), chunk("stop")) if "stream" in options else completion({"content": "x"})
    server.script = [refusal, good, good]
    client = server.client(**options)
    waiting, retries = patience()
    client.query(MESSAGES, TOOLS, waiting)
    client.query(MESSAGES, TOOLS, waiting)
    assert [gone in request for request in server.requests] == [True, False, False]
    assert len(retries) == 1
    assert retries[0].error.endswith(f"sent again without {gone}")
    assert retries[0].wait_s == 0.0


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        (
            "max_tokens",
            "max_completion_tokens",
            "Unsupported parameter: 'max_tokens' is not supported here. Use 'max_completion_tokens' instead.",
        ),
        ("max_completion_tokens", "max_tokens", "Unrecognized request argument supplied: max_completion_tokens"),
    ],
)
def test_limit_of_a_reply_is_renamed_and_never_lost(server: ModelServer, first: str, then: str, message: str) -> None:
    server.script = [error(400, message=message), completion({"content": "x"}), error(400, message=f"{then} is bad")]
    client = server.client(output_tokens=900, output_limit=first)
    client.query(MESSAGES, [], patience()[0])
    assert [(first in request, then in request) for request in server.requests] == [(True, False), (False, True)]
    with pytest.raises(ModelServerError, match=f"{then} is bad"):
        client.query(MESSAGES, [], patience()[0])


def test_effort_that_was_asked_for_is_never_left_out(server: ModelServer) -> None:
    server.script = [error(400, message="Unsupported value: 'reasoning_effort' does not support 'hgih'.")]
    with pytest.raises(ModelServerError, match="hgih"):
        server.client(effort="hgih").query(MESSAGES, [], patience()[0])


@pytest.mark.parametrize(
    "message", ["strict is not supported by this grammar", "Invalid schema for function 'compile_kernel': no enum"]
)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_strict_schemas_that_are_refused_become_loose(server: ModelServer, api: str, message: str) -> None:
    server.script = [error(400, message=message), completion({"content": "x"})]
    if api == "responses":
        server.script[1] = response(said("x"))
    server.client(api=api, strict=True).query(MESSAGES, TOOLS, patience()[0])
    assert '"strict"' in repr(server.requests[0]).replace("'", '"')
    assert '"strict"' not in repr(server.requests[1]).replace("'", '"')


def test_several_fields_refused_at_once_are_left_out_at_once(server: ModelServer) -> None:
    refusal = Answer({"detail": "Unexpected fields in the request: {'store', 'include', 'reasoning'}"}, 422)
    server.script = [refusal, response(said("x"))]
    server.client(api="responses", summary="auto").query(MESSAGES, [], patience()[0])
    assert set(server.requests[0]) - set(server.requests[1]) == {"store", "include", "reasoning"}


@pytest.mark.parametrize(
    ("refusal", "gone"),
    [
        (error(400, message="Encrypted content is not supported with this model.", param="include"), "include"),
        (
            error(
                400,
                "unsupported_value",
                "Your organization must be verified to generate reasoning summaries.",
                param="reasoning.summary",
            ),
            "reasoning",
        ),
    ],
)
def test_what_responses_refuse_for_some_models(server: ModelServer, refusal: Answer, gone: str) -> None:
    server.script = [refusal, response(said("x"))]
    server.client(api="responses", summary="auto").query(MESSAGES, [], patience()[0])
    assert set(server.requests[0]) - set(server.requests[1]) == {gone}


def test_effort_stays_where_the_summary_is_refused(server: ModelServer) -> None:
    refusal = error(400, message="Unsupported parameter: 'reasoning.summary'", param="reasoning.summary")
    server.script = [refusal, response(said("x"))]
    server.client(api="responses", summary="auto", effort="low").query(MESSAGES, [], patience()[0])
    assert server.requests[1]["reasoning"] == {"effort": "low"}


def test_corrections_do_not_use_up_the_attempts(server: ModelServer) -> None:
    refusals = [error(400, message=f"Unsupported parameter: '{name}'") for name in ("temperature", "stream_options")]
    good = stream(chunk(content="x"), chunk("stop"))
    server.script = [*refusals, *[error(500)] * 7, good]
    assert server.client(temperature=0.6, stream=True).query(MESSAGES, [], patience()[0]).text == "x"


def test_ordinary_words_are_not_taken_for_fields(server: ModelServer) -> None:
    server.script = [error(400, message="Please include a valid tool and store it first.")]
    with pytest.raises(ModelServerError, match="include a valid tool"):
        server.client(api="responses").query(MESSAGES, [], patience()[0])
    assert len(server.requests) == 1
