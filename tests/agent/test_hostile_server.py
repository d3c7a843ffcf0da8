"""Tests of servers that mean harm, or are broken beyond what any specification foresees."""

import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from model_server import MESSAGES, Answer, ModelServer, calls_of, completion, patience, response, running_server, stream
from scripted import ScriptedModel, ScriptedTools, compile_call, resume, roll_out

from agent import connection
from agent.model import ModelReply
from agent.served import HIDDEN, ServedModel
from agent.server_faults import ServerFault
from runs.arguments import parsed_arguments
from runs.config import Limits, ModelOptions
from runs.events import EndReason, ModelReplied, ToolCall, ToolReturned
from runs.store import RunDirectory
from tasks.errors import ModelServerError, RunFormatError

pytestmark = pytest.mark.server
server = running_server

KEY = "sk-0123456789abcdef"
DEEP = "[" * 300 + "]" * 300
DEEPER = "[" * 100_000 + "]" * 100_000


def completed(**more: str) -> Answer:
    """A completion with further fields, whose values are written as they are."""
    fields = "".join(f',"{name}":{value}' for name, value in more.items())
    return Answer(f'{{"choices":[{{"finish_reason":"stop","message":{{"content":"fine"}}}}]{fields}}}')


@contextmanager
def raw_server(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server that answers one connection with bytes of its own, until the client leaves or the event is set."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)

        def serve() -> None:
            while not over.is_set():
                try:
                    with listener.accept()[0] as accepted:
                        accepted.settimeout(10)
                        accepted.recv(65536)
                        answer(accepted, over)
                except OSError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            over.set()
            thread.join()


def dripping(beginning: bytes, drop: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def answer(client: socket.socket, over: threading.Event) -> None:
        client.sendall(beginning)
        while not over.wait(0.05):
            client.sendall(drop)

    return answer


def head(kind: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("answer", "streaming"),
    [
        (dripping(head("application/json"), b" "), False),
        (dripping(b"HTTP/1.1 200 OK\r\n", b"x"), False),
        (dripping(head("text/event-stream"), b": still here\n\n"), True),
        (dripping(head("text/event-stream") + b"data: ", b"x"), True),
    ],
    ids=["body", "headers", "comments of a stream", "line of a stream"],
)
def test_answer_that_drips_for_ever_ends_with_the_time(
    answer: Callable[[socket.socket, threading.Event], None], streaming: bool
) -> None:
    with raw_server(answer) as url, pytest.raises(ModelServerError, match="the time was up"):
        client = ServedModel("local", KEY, url, ModelOptions(stream=streaming))
        client.query(MESSAGES, [], patience(seconds=1.0)[0])


@pytest.mark.parametrize("status", [200, 400])
def test_endless_answer_does_not_fill_the_memory(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_ANSWER_BYTES", 10_000)
    beginning = f"HTTP/1.1 {status} So\r\ncontent-type: application/json\r\n\r\n".encode()
    sent = 0

    def answer(client: socket.socket, over: threading.Event) -> None:
        nonlocal sent
        client.sendall(beginning)
        while not over.is_set():
            sent += client.send(b" " * 1000)

    with raw_server(answer) as url:
        fault = ServedModel("local", KEY, url, ModelOptions())
        with pytest.raises(ModelServerError, match="an answer of over 10000 bytes"):
            fault.query(MESSAGES, [], patience(seconds=0.5)[0])


def test_packed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * 10_000_000)

    def answer(client: socket.socket, over: threading.Event) -> None:
        lengths = f"content-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n".encode()
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + lengths + packed)
        over.wait(0.2)

    with raw_server(answer) as url, pytest.raises(ModelServerError, match="packed as 'gzip', which was not asked for"):
        ServedModel("local", KEY, url, ModelOptions()).query(MESSAGES, [], patience(seconds=0.5)[0])


@pytest.mark.parametrize(
    "answer",
    [
        Answer(DEEPER),
        completed(more=DEEPER),
        completed(more="9" * 5000),
        Answer({"error": {"code": "\N{SUPERSCRIPT TWO}", "message": "no"}}),
        Answer({"error": {"code": "9" * 5000, "message": "no"}}),
        Answer({"error": {"message": f"try again in {'9' * 5000}h"}}),
        Answer({"error": {"message": f"try again in {'9' * 500}s"}}),
        Answer({"error": {"code": ["x"], "message": {"y": 1}}}),
    ],
    ids=["deep", "deep part", "digits", "code no number", "code too long", "hours", "seconds", "types"],
)
def test_answer_that_python_cannot_read_is_tried_again(server: ModelServer, answer: Answer) -> None:
    server.script = [answer, completion({"content": "fine"})]
    told, retries = patience()
    assert server.client().query(MESSAGES, [], told).text == "fine"
    assert len(retries) == 1


def test_stream_that_python_cannot_read_is_tried_again(server: ModelServer) -> None:
    server.script = [stream(f"data: {DEEPER}\n\n"), stream(f"data: {'9' * 5000}\n\n"), completion({})]
    server.script[2] = stream('data: {"choices":[{"delta":{"content":"fine"},"finish_reason":"stop"}]}\n\n')
    told, retries = patience()
    assert server.client(stream=True).query(MESSAGES, [], told).text == "fine"
    assert len(retries) == 2


@pytest.mark.parametrize(
    "answer",
    [
        completed(more=DEEP),
        completed(more="NaN", other="-Infinity", third="9" * 4000),
        completed(usage='{"prompt_tokens":NaN,"completion_tokens":Infinity}'),
        completed(usage=f'{{"prompt_tokens":{"9" * 400},"completion_tokens":-1}}'),
        Answer(f'{{"choices":[{{"message":{{"content":"fine","reasoning_details":[{{"n":NaN,"d":{DEEP}}}]}}}}]}}'),
    ],
    ids=["depth", "numbers", "counts", "great counts", "reasoning"],
)
def test_reply_that_the_transcript_could_not_hold_is_held(server: ModelServer, tmp_path: Path, answer: Answer) -> None:
    server.script = [answer, completion({"content": "more"}), *(completion({"content": "x"}) for _ in range(2))]
    ended, events = roll_out(tmp_path, server.client(), ScriptedTools(), Limits(turns=2))
    assert ended.reason is EndReason.TURN_LIMIT
    replies = [event for event in events if isinstance(event, ModelReplied)]
    assert [reply.text for reply in replies] == ["fine", "more"]
    usage = replies[0].usage
    assert usage is not None
    # What is no count is estimated.
    assert 0 < usage.input_tokens < 1000
    # What goes back is JSON that every server reads.
    assert "NaN" not in json.dumps(server.requests[1])


def test_arguments_that_no_parser_takes_do_not_poison_the_rollout(tmp_path: Path) -> None:
    hostile = (
        DEEPER,
        f'{{"kernel_code":"x","more":{DEEP}}}',
        '{"kernel_code":"x","more":NaN}',
        '{"kernel_code":"\\ud800"}',
    )
    calls = tuple(ToolCall(id=str(number), name="unknown", arguments=each) for number, each in enumerate(hostile))

    class NoTools(ScriptedTools):
        def call(self, name: str, arguments: str):  # type: ignore[no-untyped-def]  # noqa: ARG002
            return self._refused("no")

    model = ScriptedModel([ModelReply(text="", tool_calls=calls), KeyboardInterrupt()])
    ended, events = roll_out(tmp_path, model, NoTools())
    assert ended.reason is EndReason.INTERRUPTED
    assert [event.call_id for event in events if isinstance(event, ToolReturned)] == ["0", "1", "2", "3"]
    assert [parsed_arguments(call.arguments) for call in calls] == [None] * 4
    again = ScriptedModel([ModelReply(text="x")] * 4)
    assert resume(tmp_path, again, NoTools())[0].reason is EndReason.MODEL_STOPPED
    replayed = [message for message in again.asked[0] if message.role == "assistant"]
    assert [call.arguments for message in replayed for call in message.tool_calls] == ["{}"] * 4


def test_calls_with_the_same_id_get_different_ones(server: ModelServer) -> None:
    server.script = [completion(calls_of(*(ToolCall(id="call_1", name="n", arguments="{}") for _ in range(3))))]
    calls = server.client().query(MESSAGES, [], patience()[0]).tool_calls
    assert calls[0].id == "call_1"
    assert len({call.id for call in calls}) == 3


@pytest.mark.parametrize("name", ["functions.verify", "no such tool", "x" * 65, "\N{GREEK SMALL LETTER BETA}"])
def test_name_that_servers_refuse_is_not_sent_back(server: ModelServer, tmp_path: Path, name: str) -> None:
    server.script = [completion(calls_of(ToolCall(id="a", name=name, arguments="{}"))), completion({"content": "x"})]
    _, events = roll_out(tmp_path, server.client(), ScriptedTools(), Limits(turns=2))
    assert [event.tool for event in events if isinstance(event, ToolReturned)] == [name]
    messages = server.requests[1]["messages"]
    assert isinstance(messages, list)
    sent = messages[2]["tool_calls"][0]["function"]["name"]
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", sent)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_reply_that_a_filter_cut_off_is_not_carried_out(server: ModelServer, tmp_path: Path, api: str) -> None:
    call = compile_call("half of the code", "a")
    item = {"type": "function_call", "call_id": "a", "name": call.name, "arguments": call.arguments}
    cut = {"reason": "content_filter"}
    server.script = [
        completion(calls_of(call), "content_filter")
        if api == "chat"
        else response(item, status="incomplete", incomplete_details=cut)
    ]
    tools = ScriptedTools()
    _, events = roll_out(tmp_path, server.client(api=api), tools, Limits(turns=1))
    assert tools.calls == []
    assert [event.executed for event in events if isinstance(event, ToolReturned)] == [False]


def test_key_that_the_server_repeats_is_not_recorded(server: ModelServer, tmp_path: Path) -> None:
    said = f"Bearer {KEY}"
    server.script = [
        Answer({"error": {"message": said}}, 429),
        Answer({"error": {"message": said}}),
        completion({"content": said, "reasoning_content": said, **calls_of(compile_call(said, said))}),
        Answer({"error": {"message": said}}, 401),
    ]
    client = ServedModel("local", KEY, server.url, ModelOptions())
    ended, _ = roll_out(tmp_path, client, ScriptedTools())
    assert ended.reason is EndReason.MODEL_SERVER_ERROR
    assert HIDDEN in ended.message
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) == 2
    assert not any(KEY in text for text in texts)


def test_word_that_stands_for_a_key_is_left_in_replies(server: ModelServer) -> None:
    server.script = [completion({"content": "none of it"})]
    client = ServedModel("local", "none", server.url, ModelOptions())
    assert client.query(MESSAGES, [], patience()[0]).text == "none of it"


@pytest.mark.parametrize("foreign", ["../../outside", "/tmp/outside", "", ".", "a/b"])
def test_candidate_of_a_transcript_leads_nowhere_else(tmp_path: Path, foreign: str) -> None:
    run = RunDirectory(tmp_path / "run")
    run.candidates.mkdir(parents=True)
    (tmp_path / "outside.py").write_text("secret")
    with pytest.raises(RunFormatError, match="no candidate's id"):
        run.candidate_text(foreign)
    with pytest.raises(RunFormatError, match="no candidate's id"):
        run.save_candidate(foreign, "text")


def test_time_for_an_answer_is_what_is_left_and_no_more() -> None:
    with pytest.raises(ServerFault, match="the time was up"):
        connection.in_time(threading.Event().wait, time.monotonic() - connection.GRACE_S)
