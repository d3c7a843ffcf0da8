"""Tests of `kernelwright serve` as a process of its own: over standard input and output, and over HTTP."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest

pytest.importorskip("mcp", reason="needs the MCP SDK: pip install -e '.[mcp]'")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from serve_scripted import HANGS
from serving_bench import CODE, Shop

from agent.serving.command import serve_tools
from agent.serving.desk import DISCONNECTED, ROLLOUT, STOPPED
from agent.serving.over_http import TOKEN_NAME, serve_http
from runs.events import Ended, EndReason, Event, ToolReturned
from runs.find import list_runs
from tasks.errors import UnavailableError, UsageError
from tasks.spec import Target

HERE = Path(__file__).parent
PROGRAM = str(HERE / "serve_scripted.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)])}
TOKEN = "a token of the tests"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}


def called(name: str, number: int, **arguments: str) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


class Talk:
    """JSON-RPC by hand with a server on standard input and output."""

    def __init__(self, out: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, str(out)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            text=True,
        )
        self.ask(INITIALIZE)
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tell(self, message: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, message: dict[str, object]) -> dict[str, object]:
        self.tell(message)
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == message["id"]
        result: dict[str, object] = answer["result"]
        return result

    def end(self) -> tuple[str, str]:
        """What was left on standard output and error once it has ended."""
        return self.process.communicate(timeout=60)


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    made = Talk(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


def events_below(out: Path) -> tuple[Event, ...]:
    (run,) = list_runs(out)
    return run.events(ROLLOUT)


def end_below(out: Path) -> tuple[EndReason, str]:
    ended = events_below(out)[-1]
    assert isinstance(ended, Ended)
    return ended.reason, ended.message


def test_standard_output_holds_the_protocol_and_nothing_else(talk: Talk, tmp_path: Path) -> None:
    assert talk.ask(called("compile_kernel", 1, kernel_code=CODE))["isError"] is False
    assert talk.ask(called("submit", 2))["isError"] is False
    assert talk.process.stdin is not None
    talk.process.stdin.close()
    talk.process.stdin = None
    left, errors = talk.end()
    assert (left, talk.process.returncode) == ("", 0)
    for noise in ("printed", "written", "of a child"):
        assert noise in errors
    assert end_below(tmp_path)[0] is EndReason.SUBMITTED


def test_the_end_of_standard_input_ends_the_rollout(talk: Talk, tmp_path: Path) -> None:
    talk.ask(called("compile_kernel", 1, kernel_code=CODE))
    assert talk.process.stdin is not None
    talk.process.stdin.close()
    talk.process.stdin = None
    talk.end()
    assert end_below(tmp_path) == (EndReason.INTERRUPTED, DISCONNECTED)


def test_a_signal_ends_the_rollout_while_a_call_is_carried_out_and_the_client_stays(talk: Talk, tmp_path: Path) -> None:
    talk.ask(called("compile_kernel", 1, kernel_code=CODE))
    talk.tell(called("compile_kernel", 2, kernel_code=HANGS))
    assert talk.process.stderr is not None
    printed = [talk.process.stderr.readline() for _ in range(6)]
    assert printed.count("of a child\n") == 2
    talk.process.send_signal(signal.SIGTERM)
    assert talk.process.wait(60) == 130
    assert end_below(tmp_path) == (EndReason.INTERRUPTED, STOPPED)
    assert [event.tool for event in events_below(tmp_path) if isinstance(event, ToolReturned)] == ["compile_kernel"]


def test_a_killed_server_leaves_a_log_that_can_be_read(talk: Talk, tmp_path: Path) -> None:
    talk.ask(called("compile_kernel", 1, kernel_code=CODE))
    talk.tell(called("compile_kernel", 2, kernel_code=HANGS))
    talk.process.kill()
    talk.process.wait(60)
    events = events_below(tmp_path)
    assert not any(isinstance(event, Ended) for event in events)
    assert [event.tool for event in events if isinstance(event, ToolReturned)] == ["compile_kernel"]


def test_the_sdks_client_starts_a_server_and_drives_a_rollout(tmp_path: Path) -> None:
    server = StdioServerParameters(command=sys.executable, args=[PROGRAM, str(tmp_path)], env=ENVIRONMENT)

    async def drive() -> list[bool]:
        async with Client(server) as client:
            built = await client.call_tool("compile_kernel", {"kernel_code": CODE})
            return [built.is_error, (await client.call_tool("submit", {})).is_error]

    assert asyncio.run(drive()) == [False, False]
    assert end_below(tmp_path)[0] is EndReason.SUBMITTED


@contextmanager
def serving(out: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server on HTTP, with its address and what it said of its token."""
    process = subprocess.Popen(
        [sys.executable, PROGRAM, str(out), "http"],
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, **environment},
        text=True,
    )
    try:
        assert process.stderr is not None
        first, second = process.stderr.readline(), process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", first)
        assert found is not None, first + second + process.stderr.read()
        yield process, found[0], second.strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@asynccontextmanager
async def connected(url: str, token: str, mode: str) -> AsyncIterator[Client]:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        yield client


@pytest.mark.server
def test_over_http_a_client_with_the_token_drives_a_rollout(tmp_path: Path) -> None:
    async def drive(url: str, token: str, mode: str) -> list[bool]:
        async with connected(url, token, mode) as client:
            built = await client.call_tool("compile_kernel", {"kernel_code": CODE})
            return [built.is_error, (await client.call_tool("submit", {})).is_error]

    for mode in ("legacy", "auto"):
        out = tmp_path / mode
        with serving(out, **{TOKEN_NAME: ""}) as (_, url, said):
            assert asyncio.run(drive(url, said.rpartition(" ")[2], mode)) == [False, False]
        assert end_below(out)[0] is EndReason.SUBMITTED


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("http"), **{TOKEN_NAME: TOKEN}) as (_, address, said):
        assert TOKEN not in said and TOKEN_NAME in said
        yield address


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(monkeypatch, tmp_path)


def initialize(url: str, **headers: str) -> int:
    accepts = {"Accept": "application/json, text/event-stream"}
    return httpx2.post(url, json=INITIALIZE, headers={**accepts, **headers}, timeout=60).status_code


@pytest.mark.server
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example:80"}, 421),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Mcp-Protocol-Version": "2026-07-28"}, 400),
        ({"Authorization": f"bearer{TOKEN}"}, 401),
    ],
)
def test_requests_need_the_token_and_must_be_meant_for_this_machine(
    url: str, headers: dict[str, str], status: int
) -> None:
    assert initialize(url, **headers) == status


@pytest.mark.server
def test_a_client_that_ends_its_session_ends_its_rollout_and_no_others(tmp_path: Path) -> None:
    async def drive(url: str) -> None:
        async with connected(url, TOKEN, "legacy") as stays:
            async with connected(url, TOKEN, "legacy") as leaves:
                await stays.call_tool("compile_kernel", {"kernel_code": CODE})
                await leaves.call_tool("compile_kernel", {"kernel_code": CODE})
            await stays.call_tool("compile_kernel", {"kernel_code": CODE})

    with serving(tmp_path, **{TOKEN_NAME: TOKEN}) as (_, url, _said):
        asyncio.run(drive(url))
    counts = {}
    for run in list_runs(tmp_path):
        events = run.events(ROLLOUT)
        assert isinstance(events[-1], Ended)
        counts[sum(isinstance(event, ToolReturned) for event in events)] = events[-1].message
    assert counts == {1: DISCONNECTED, 2: DISCONNECTED}


@pytest.mark.server
def test_clients_that_would_do_without_sessions_have_a_rollout_each(tmp_path: Path) -> None:
    """What one compiled stood in the transcript of the other, and its submission ended both."""

    async def drive(url: str) -> None:
        async with connected(url, TOKEN, "auto") as one, connected(url, TOKEN, "auto") as other:
            for number, client in enumerate((one, other, one)):
                code = f"{CODE}  # {number}"
                assert not (await client.call_tool("compile_kernel", {"kernel_code": code})).is_error

    with serving(tmp_path, **{TOKEN_NAME: TOKEN}) as (_, url, _said):
        asyncio.run(drive(url))
    counts = [sum(isinstance(e, ToolReturned) for e in run.events(ROLLOUT)) for run in list_runs(tmp_path)]
    assert sorted(counts) == [1, 2]


@pytest.mark.server
def test_a_stopped_http_server_ends_its_rollouts(tmp_path: Path) -> None:
    with serving(tmp_path, **{TOKEN_NAME: TOKEN}) as (process, url, _):
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
        begun = httpx2.post(url, json=INITIALIZE, headers=headers, timeout=60)
        headers["Mcp-Session-Id"] = begun.headers["mcp-session-id"]
        httpx2.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers, timeout=60)
        httpx2.post(url, json=called("compile_kernel", 1, kernel_code=CODE), headers=headers, timeout=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    assert end_below(tmp_path) == (EndReason.INTERRUPTED, STOPPED)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_only_this_machine_is_listened_on(shop: Shop, host: str) -> None:
    with pytest.raises(UsageError, match=r"is no loopback address.*SSH tunnel"):
        serve_http(shop.server, shop.desk, host, 0)


def test_a_port_that_is_taken_is_said_to_be(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="Choose another --port"):
        serve_http(shop.server, shop.desk, "127.0.0.1", taken.getsockname()[1])


def test_without_the_sdk_serve_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UnavailableError, match=r"pip install -e '.\[mcp\]'"):
        serve_tools(None, target=Target.CPU, out=tmp_path, address=None, require=None)
