"""Tests of the Chat Completions client against a server on this machine."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from scripted import ScriptedTools, compile_call
from scripted import briefing as sample_briefing

from agent import openai_chat
from agent.budget import Budget
from agent.loop import Rollout
from agent.model import (
    AssistantMessage,
    ContextOverflowError,
    Message,
    Patience,
    Retry,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from agent.openai_chat import OpenAIChat
from runs.config import Limits
from runs.events import EndReason, ModelReplied, Retried, RolloutStarted, ToolCall, Usage
from runs.store import RunDirectory
from tasks.errors import ModelServerError
from tasks.spec import Target

pytestmark = pytest.mark.server

MESSAGES: tuple[Message, ...] = (SystemMessage(text="You write kernels."), UserMessage(text="Begin."))


@dataclass
class Answer:
    """One scripted answer of the server."""

    body: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class ChatServer:
    """Answers POST /v1/chat/completions by a script and keeps the requests."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.requests: list[dict[str, object]] = []
        self.keys: list[str | None] = []
        self.arrivals: list[float] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.arrivals.append(time.monotonic())
                server.requests.append(json.loads(body))
                server.keys.append(self.headers["authorization"])
                answer = server.script.pop(0) if self.path == "/v1/chat/completions" else Answer({}, 404)
                text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
                headers = {"content-type": "application/json", **answer.headers}
                self.send_response(answer.status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Keep the test's output clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    made = ChatServer()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "_BACKOFF", lambda _: 0.01)


def completion(message: dict[str, object], finish_reason: str = "stop", **more: object) -> Answer:
    return Answer(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "local",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", "content": None, **message},
                }
            ],
            "usage": {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57},
            **more,
        }
    )


def calls_of(*calls: ToolCall) -> dict[str, object]:
    return {
        "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    }


def error(status: int, code: str | None = None, message: str = "no", **headers: str) -> Answer:
    body = {"error": {"message": message, "type": code, "code": code}}
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def patience(seconds: float | None = None) -> tuple[Patience, list[Retry]]:
    retries: list[Retry] = []
    return Patience(seconds=seconds, on_retry=retries.append), retries


def client(server: ChatServer) -> OpenAIChat:
    return OpenAIChat("local", "secret", server.url)


def test_reply_with_reasoning_calls_and_usage(server: ChatServer) -> None:
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
    reply = client(server).query(MESSAGES, tools, patience()[0])
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
        ({}, ""),
    ],
)
def test_reasoning_under_its_other_names(server: ChatServer, fields: dict[str, object], expected: str) -> None:
    server.script = [completion({"content": "x", **fields})]
    reply = client(server).query(MESSAGES, [], patience()[0])
    assert reply.reasoning == expected
    assert reply.reasoning_fields == fields


def test_reasoning_goes_back_under_the_name_it_came_with(server: ChatServer) -> None:
    server.script = [completion({"content": "x"})]
    call = compile_call("code", "a")
    history: tuple[Message, ...] = (
        *MESSAGES,
        AssistantMessage(text="Trying.", tool_calls=(call,), reasoning={"reasoning_content": "Taps first."}),
        ToolMessage(call_id="a", text="built"),
    )
    client(server).query(history, [], patience()[0])
    messages = server.requests[0]["messages"]
    assert isinstance(messages, list)
    assert messages[2] == {
        "role": "assistant",
        "content": "Trying.",
        "reasoning_content": "Taps first.",
        **calls_of(call),
    }
    assert messages[3] == {"role": "tool", "tool_call_id": "a", "content": "built"}


def test_server_that_refuses_its_reasoning_gets_none(server: ChatServer) -> None:
    refusal = error(400, message="reasoning_content is not allowed in messages")
    server.script = [refusal, completion({"content": "x"}), completion({"content": "y"})]
    history: tuple[Message, ...] = (*MESSAGES, AssistantMessage(text="a", reasoning={"reasoning_content": "b"}))
    chat = client(server)
    assert chat.query(history, [], patience()[0]).text == "x"
    assert chat.query(history, [], patience()[0]).text == "y"
    assert ["reasoning_content" in json.dumps(request) for request in server.requests] == [True, False, False]


def test_calls_without_usable_ids_get_their_own(server: ChatServer) -> None:
    nameless = ToolCall(id="", name="", arguments="{}")
    server.script = [completion(calls_of(compile_call("a", "same"), compile_call("b", "same"), nameless))]
    reply = client(server).query(MESSAGES, [], patience()[0])
    assert [call.id for call in reply.tool_calls] == ["same", "call_1", "call_2"]
    assert reply.tool_calls[2].name == "unnamed"


def test_arguments_sent_as_an_object_become_text(server: ChatServer) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "compile_kernel", "arguments": {"kernel_code": "x"}}}
    server.script = [completion({"tool_calls": [call]})]
    reply = client(server).query(MESSAGES, [], patience()[0])
    assert reply.tool_calls[0].arguments == '{"kernel_code": "x"}'


def test_retry_waits_as_long_as_the_server_asks(server: ChatServer) -> None:
    server.script = [error(429, retry_after="1"), completion({"content": "x"})]
    waiting, retries = patience()
    assert client(server).query(MESSAGES, [], waiting).text == "x"
    assert server.arrivals[1] - server.arrivals[0] >= 1.0
    assert [(retry.attempt, retry.wait_s) for retry in retries] == [(1, 1.0)]
    assert "429" in retries[0].error


def test_retry_after_a_date(server: ChatServer) -> None:
    server.script = [error(503, retry_after=formatdate(time.time() + 2, usegmt=True)), completion({"content": "x"})]
    waiting, retries = patience()
    client(server).query(MESSAGES, [], waiting)
    assert 0.5 <= retries[0].wait_s <= 2.0


def test_faults_of_the_server_are_retried(server: ChatServer) -> None:
    server.script = [error(500), error(503), error(429), completion({"content": "x"})]
    waiting, retries = patience()
    assert client(server).query(MESSAGES, [], waiting).text == "x"
    assert [retry.attempt for retry in retries] == [1, 2, 3]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (error(429, "insufficient_quota"), "quota .* Waiting does not help"),
        (error(401), "OPENAI_API_KEY"),
        (error(404), "--model and --base-url"),
        (error(400, message="bad tools"), "bad tools"),
    ],
)
def test_faults_that_do_not_pass_are_not_retried(server: ChatServer, answer: Answer, told: str) -> None:
    server.script = [answer]
    waiting, retries = patience()
    with pytest.raises(ModelServerError, match=told):
        client(server).query(MESSAGES, [], waiting)
    assert (len(server.requests), retries) == (1, [])


def test_retries_are_bounded_by_number(server: ChatServer) -> None:
    """R28."""
    server.script = [error(500)] * 20
    with pytest.raises(ModelServerError):
        client(server).query(MESSAGES, [], patience()[0])
    assert len(server.requests) == openai_chat.MOST_ATTEMPTS


def test_retries_are_bounded_by_the_time_that_is_left(server: ChatServer) -> None:
    server.script = [error(429, retry_after="60")] * 2
    waiting, retries = patience(seconds=5.0)
    with pytest.raises(ModelServerError):
        client(server).query(MESSAGES, [], waiting)
    assert (len(server.requests), retries) == (1, [])


def test_no_server_at_all_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "MOST_ATTEMPTS", 2)
    waiting, retries = patience()
    with pytest.raises(ModelServerError, match=r"127\.0\.0\.1:9/v1.*--base-url"):
        OpenAIChat("local", "secret", "http://127.0.0.1:9/v1").query(MESSAGES, [], waiting)
    assert len(retries) == 1


@pytest.mark.parametrize(
    "answer",
    [
        error(400, "context_length_exceeded"),
        error(400, message="This model's maximum context length is 4096 tokens."),
        error(400, message="the request exceeds the available context size"),
    ],
)
def test_conversation_that_is_too_long_is_told_apart(server: ChatServer, answer: Answer) -> None:
    server.script = [answer]
    with pytest.raises(ContextOverflowError):
        client(server).query(MESSAGES, [], patience()[0])


@pytest.mark.parametrize(
    "answer",
    [
        Answer("<html>Welcome</html>", headers={"content-type": "text/html"}),
        Answer("{broken"),
        Answer({"error": {"message": "provider down"}}),
        Answer({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}),
    ],
)
def test_answers_that_are_no_completion(server: ChatServer, answer: Answer) -> None:
    server.script = [answer]
    with pytest.raises(ModelServerError):
        client(server).query(MESSAGES, [], patience()[0])


def test_rollout_against_a_server_with_a_fault_and_broken_arguments(server: ChatServer, tmp_path: Path) -> None:
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
        run, started, client(server), ScriptedTools(), Budget(Limits(turns=5), None), watch=lambda _: None
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
