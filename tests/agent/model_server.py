"""A model's server on this machine that answers by a script, over real sockets."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent import served
from agent.model import Message, Patience, Retry, SystemMessage, UserMessage
from agent.served import ServedModel
from runs.apis import Api
from runs.config import ModelOptions
from runs.events import ToolCall

MESSAGES: tuple[Message, ...] = (SystemMessage(text="You write kernels."), UserMessage(text="Begin."))
PATHS = {Api.CHAT: "/v1/chat/completions", Api.RESPONSES: "/v1/responses"}


@dataclass
class Answer:
    """One scripted answer of the server."""

    body: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drops: bool = False
    """Announces more than it sends, and closes the connection."""
    silent: threading.Event | None = None
    """Not answered before this is set."""


class ModelServer:
    """Answers POST requests by a script and keeps them."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.requests: list[dict[str, object]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.arrivals: list[float] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.arrivals.append(time.monotonic())
                server.requests.append(json.loads(body))
                server.paths.append(self.path)
                server.keys.append(self.headers["authorization"])
                answer = server.script.pop(0) if self.path in PATHS.values() else Answer({}, 404)
                if answer.silent is not None:
                    answer.silent.wait()
                    return
                text = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
                headers = {"content-type": "application/json", **answer.headers}
                self.send_response(answer.status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(text) + 1000 * answer.drops))
                self.end_headers()
                self.wfile.write(text)

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

    def client(self, **options: object) -> ServedModel:
        return ServedModel("local", "secret", self.url, ModelOptions.model_validate(options))


@pytest.fixture
def running_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A scripted server; clients wait next to nothing unless it asks them to. Tests name it by an assignment."""
    monkeypatch.setattr(served, "_BACKOFF", lambda _: 0.01)
    made = ModelServer()
    yield made
    made.close()


def patience(seconds: float | None = None, stopping: threading.Event | None = None) -> tuple[Patience, list[Retry]]:
    """Patience and the list in which it keeps what it is told."""
    retries: list[Retry] = []
    return Patience(seconds=seconds, on_retry=retries.append, stopping=stopping), retries


def error(
    status: int, code: str | None = None, message: str = "no", param: str | None = None, **headers: str
) -> Answer:
    body = {"error": {"message": message, "type": code, "code": code, "param": param}}
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def completion(message: Mapping[str, object], finish_reason: str = "stop", **more: object) -> Answer:
    """A whole answer of Chat Completions."""
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": None, **message}}
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "local", "choices": [choice]}
    return Answer({**answer, "usage": usage, **more})


def calls_of(*calls: ToolCall) -> dict[str, list[dict[str, object]]]:
    functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
    named = zip(calls, functions, strict=True)
    return {"tool_calls": [{"id": call.id, "type": "function", "function": function} for call, function in named]}


def response(*output: Mapping[str, object], status: str = "completed", **more: object) -> Answer:
    """A whole answer of Responses."""
    usage = {"input_tokens": 50, "output_tokens": 7, "total_tokens": 57}
    answer = {"id": "resp_1", "object": "response", "created_at": 1, "model": "local", "status": status}
    return Answer({**answer, "output": list(output), "usage": usage, **more})


def said(text: str) -> dict[str, object]:
    """An output item of Responses: text."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def reasoned(**more: object) -> dict[str, object]:
    """An output item of Responses: reasoning."""
    return {"id": "rs_1", "type": "reasoning", "summary": [], **more}


def called(call: ToolCall) -> dict[str, object]:
    """An output item of Responses: a call."""
    item = {"id": f"fc_{call.id}", "type": "function_call", "status": "completed", "call_id": call.id}
    return {**item, "name": call.name, "arguments": call.arguments}


def stream(*events: object, drops: bool = False, done: bool = True) -> Answer:
    """A stream of server-sent events; a text among them is sent as it is."""
    lines = [event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n" for event in events]
    end = "data: [DONE]\n\n" if done else ""
    return Answer("".join(lines) + end, headers={"content-type": "text/event-stream"}, drops=drops)


def chunk(finish_reason: str | None = None, usage: object = None, **delta: object) -> dict[str, object]:
    """One chunk of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "local"}
    return {**head, "choices": [choice] if delta or finish_reason else [], "usage": usage}
