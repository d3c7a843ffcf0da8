"""Tests of both interfaces, streaming and not, against a real server that nobody here wrote: `transformers serve`."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import serve_tiny_model
from model_server import MESSAGES, patience
from scripted import ScriptedTools, briefing, compile_call

from agent.budget import Budget
from agent.loop import Rollout
from agent.served import ServedModel
from runs.config import Limits, ModelOptions
from runs.events import EndReason, ModelReplied, Retried, RolloutStarted, ToolReturned
from runs.store import RunDirectory
from tasks.errors import ModelServerError
from tasks.spec import Target

MISSING = [name for name in ("transformers", "fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: pip install -e '.[dev]'"),
]
SCHEMA = {"type": "object", "properties": {"kernel_code": {"type": "string"}}, "required": ["kernel_code"]}
TOOLS = [{"type": "function", "function": {"name": "compile_kernel", "description": "Builds.", "parameters": SCHEMA}}]
WAYS = [(api, stream) for api in ("chat", "responses") for stream in (False, True)]
ways = pytest.mark.parametrize(("api", "stream"), WAYS)
START_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class RealServer:
    url: str
    model: str

    def client(self, model: str | None = None, **options: object) -> ServedModel:
        return ServedModel(model or self.model, "no-key", self.url, ModelOptions.model_validate(options))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """The server, in a process of its own, on a port of its choice that it tells in its log."""
    directory = tmp_path_factory.mktemp("tiny-model")
    log = directory / "server.log"
    environment = {**os.environ, "HF_HOME": str(directory / "hub"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, serve_tiny_model.__file__, str(directory / "model")]
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        ) as process,
    ):
        try:
            yield RealServer(f"{_address(process, log)}/v1", str(directory / "model"))
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"running on (http://[\d.]+:\d+)", log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.1)
    pytest.fail(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


@ways
def test_reply_of_a_real_server(real: RealServer, api: str, stream: bool) -> None:
    waiting, retries = patience()
    reply = real.client(api=api, stream=stream).query(MESSAGES, TOOLS, waiting)
    assert (reply.text, reply.reasoning) == (serve_tiny_model.TEXT, serve_tiny_model.THOUGHT)
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("compile_kernel", compile_call(serve_tiny_model.CODE).arguments)
    assert reply.finish_reason == "tool_calls"
    assert reply.usage.output_tokens == len(serve_tiny_model.REPLY)
    assert reply.usage.input_tokens > len("You write kernels.Begin.")
    assert reply.raw["model"] == real.model
    assert retries == []


@ways
def test_rollout_against_a_real_server(real: RealServer, tmp_path: Path, api: str, stream: bool) -> None:
    """Its second request holds the first reply, with its reasoning, and the result of its call."""
    limits = Limits(turns=2)
    started = RolloutStarted(
        turn=0,
        rollout="rollout-1",
        task="causal_conv",
        target=Target.CPU,
        model=real.model,
        limits=limits,
        system_prompt="You write kernels.",
        opening="Begin.",
        tools=(),
        briefing=briefing(),
    )
    (tmp_path / "candidates").mkdir()
    run = RunDirectory(tmp_path)
    client = real.client(api=api, stream=stream)
    ended = Rollout(run, started, client, ScriptedTools(), Budget(limits, None), watch=lambda _: None).run()
    assert ended.reason is EndReason.TURN_LIMIT, ended.message
    events = run.events("rollout-1")
    replies = [event for event in events if isinstance(event, ModelReplied)]
    results = [event for event in events if isinstance(event, ToolReturned)]
    assert [reply.reasoning for reply in replies] == [serve_tiny_model.THOUGHT] * 2
    first, second = (reply.usage for reply in replies)
    assert first is not None and second is not None and second.input_tokens > first.input_tokens
    assert [result.reply.text for result in results] == ["built", "built"]
    assert not any(isinstance(event, Retried) for event in events)


@pytest.mark.parametrize("stream", [False, True])
def test_limit_of_a_reply_cuts_it_off(real: RealServer, stream: bool) -> None:
    reply = real.client(stream=stream, output_tokens=4).query(MESSAGES, TOOLS, patience()[0])
    assert (reply.finish_reason, reply.tool_calls, reply.text) == ("length", (), serve_tiny_model.TEXT)


@ways
def test_what_a_real_server_refuses_is_told(real: RealServer, api: str, stream: bool) -> None:
    waiting, retries = patience()
    with pytest.raises(ModelServerError, match="Server is pinned"):
        real.client("another", api=api, stream=stream).query(MESSAGES, TOOLS, waiting)
    assert retries == []
