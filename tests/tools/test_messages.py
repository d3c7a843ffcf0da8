"""The wire between judge and worker, and the requests that go over it."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tasks.errors import ProtocolError
from tools.replies import BuildLine, DoneLine, FaultLine, parse_reply
from tools.worker import messages
from tools.worker.messages import (
    Call,
    Construct,
    Fill,
    Load,
    Probe,
    Recall,
    Region,
    Report,
    Request,
    Share,
    Slot,
    Stage,
    Timed,
    Warm,
    Wire,
    request_from_json,
    request_to_json,
)

SLOT = Slot("x", "float32", (2, 3), 256)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5.0)
        yield ours, theirs


@pytest.mark.parametrize(
    "request_",
    [
        Warm("cuda"),
        Load("import torch\n# größe", "cuda", True),
        Share(1 << 20),
        Construct("[3]", False),
        Recall(1),
        Probe((SLOT, SLOT)),
        Probe(()),
        Fill((SLOT,)),
        Fill(()),
        Call((SLOT,), (), Region(512, 1024), True),
        Stage(1 << 20, True),
        Timed((SLOT, SLOT), (SLOT,), Region(0, 1), 7, 2),
        Timed((), (), Region(256, 0), 0, 0),
        Report(),
    ],
    ids=lambda request_: type(request_).__name__,
)
def test_requests_come_back_as_they_were(ends: tuple[socket.socket, socket.socket], request_: Request) -> None:
    ours, theirs = ends
    Wire(theirs).send(request_to_json(request_))
    message = Wire(ours).receive()
    assert message is not None
    back = request_from_json(message)
    assert type(back) is type(request_)
    assert request_to_json(back) == request_to_json(request_)


def test_lines_may_arrive_in_pieces_and_together(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire = Wire(ours)

    def in_pieces() -> None:
        for piece in (b'{"a"', b": 1}\n", b'{"b": 2}\n{"c"', b": 3}\n"):
            theirs.sendall(piece)

    thread = threading.Thread(target=in_pieces)
    thread.start()
    assert [wire.receive() for _ in range(3)] == [{"a": 1}, {"b": 2}, {"c": 3}]
    thread.join()


def test_a_line_beyond_one_buffer(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    text = "größe " * 100_000
    thread = threading.Thread(target=Wire(theirs).send, args=({"text": text},))
    thread.start()
    assert Wire(ours).receive() == {"text": text}
    thread.join()


def test_the_end_of_the_stream_is_none_even_within_a_line(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b'{"torn"')
    theirs.close()
    assert Wire(ours).receive() is None


def test_silence_is_a_timeout(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        Wire(ours).receive()


@pytest.mark.parametrize(
    "line",
    [b"garbage", b"[1, 2]", b"3", b"", b'{"a": }', b"\xff\xfe", b"[" * 200_000, b'{"a": ' + b"9" * 5000 + b"}"],
    ids=["text", "list", "number", "empty", "broken", "not UTF-8", "nested deeply", "a huge number"],
)
def test_what_is_no_object_is_refused(ends: tuple[socket.socket, socket.socket], line: bytes) -> None:
    ours, theirs = ends
    thread = threading.Thread(target=theirs.sendall, args=(line + b"\n",))
    thread.start()
    with pytest.raises(ValueError):
        Wire(ours).receive()
    thread.join()


def test_a_line_that_does_not_end_is_refused(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MAX_LINE_BYTES", 1000)
    ours, theirs = ends
    theirs.sendall(b"x" * 2000)
    with pytest.raises(ValueError, match="a line of more than 1000 bytes"):
        Wire(ours).receive()


@pytest.mark.parametrize("part", [b"[],", b'"",', b"1,"], ids=["lists", "texts", "numbers"])
def test_a_line_of_very_many_values_is_refused(ends: tuple[socket.socket, socket.socket], part: bytes) -> None:
    """45 MB of empty lists once cost the judge more than a gigabyte."""
    ours, theirs = ends
    line = b'{"x": [' + part * 250_000 + b"0]}\n"
    thread = threading.Thread(target=theirs.sendall, args=(line,))
    thread.start()
    with pytest.raises(ValueError, match="more than 200000 values"):
        Wire(ours).receive()
    thread.join()


def test_sources_may_hold_as_many_commas_as_they_like(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    text = '{[,"\\' * 100_000
    thread = threading.Thread(target=Wire(theirs).send, args=({"text": text},))
    thread.start()
    assert Wire(ours).receive() == {"text": text}
    thread.join()


def test_replies_are_told_apart() -> None:
    assert isinstance(parse_reply({"done": {}}), DoneLine)
    fault = {"kind": "exception", "type": "ValueError", "message": "no"}
    assert isinstance(parse_reply({"fault": fault}), FaultLine)
    assert isinstance(parse_reply({"build": {"name": "a"}}), BuildLine)


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"done": None},
        {"done": {"verdict": "correct"}},
        {"done": {"prepare_ns": -1}},
        {"done": {"ns": -1}},
        {"done": {"ns": 10**30}},
        {"done": {}, "fault": {}},
        {"done": {"outputs": [{"name": "output", "dtype": "float32", "shape": [1] * 17}]}},
        {"done": {"outputs": [{"name": "output", "dtype": "x" * 100, "shape": []}]}},
        {"fault": {"kind": "harness_error", "type": "", "message": ""}},
        {"verdict": "correct"},
    ],
)
def test_other_replies_break_the_protocol(line: dict[str, object]) -> None:
    with pytest.raises(ProtocolError, match="broke the protocol"):
        parse_reply(line)
