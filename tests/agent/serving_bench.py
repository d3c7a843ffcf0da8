"""A server without a judge: scripted tools at the bench, and candidates that any of them builds."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp_types import Implementation
from scripted import ScriptedTools, briefing

from agent.serving import bench as bench_module
from agent.serving.bench import Bench
from agent.serving.desk import DISCONNECTED, ROLLOUT, Desk
from agent.serving.server import make_server
from agent.workplace import Workplace
from runs.events import Event
from runs.find import list_runs
from runs.store import RunDirectory
from tasks.loader import Task, find_task
from tasks.spec import Target
from tools.results import ToolReply

CODE = "class ModelNew: ..."
TASK = "causal_conv"


class GatedTools(ScriptedTools):
    """`verify` waits at a gate, and every call notes how many were carried out at once."""

    def __init__(self) -> None:
        super().__init__(speedups={CODE: 2.0})
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.at_once: list[int] = []
        self._inside = 0

    def call(self, name: str, arguments: str) -> ToolReply:
        self._inside += 1
        self.at_once.append(self._inside)
        if name == "verify":
            self.entered.set()
            assert self.gate.wait(60)
        reply = super().call(name, arguments)
        self._inside -= 1
        return reply


class Shop:
    """A desk over scripted tools, and what it wrote down."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        root: Path,
        tools: ScriptedTools | None = None,
        only: str | None = TASK,
    ) -> None:
        self.tools = tools or ScriptedTools(speedups={CODE: 2.0})
        self.root = root
        self.opened: list[str] = []

        @contextmanager
        def workplace(task: Task, target: Target, parallel: int, note: Callable[[str], None]) -> Iterator[Workplace]:
            assert parallel == 1
            self.opened.append(task.name)
            note("timing the baseline: eager")
            yield Workplace(briefing(target), lambda: self.tools, lambda: None)
            self.opened.append(f"{task.name} closed")

        monkeypatch.setattr(bench_module, "workplace", workplace)
        self.desk = Desk(Bench(Target.CPU), root, None if only is None else find_task(only))
        self.server = make_server(self.desk, DISCONNECTED)

    def client(self, mode: str = "auto", name: Implementation | None = None) -> Client:
        return Client(self.server, mode=mode, client_info=name)

    def runs(self) -> list[RunDirectory]:
        return list_runs(self.root)

    def events(self) -> tuple[Event, ...]:
        (run,) = self.runs()
        return run.events(ROLLOUT)


async def until(holds: threading.Event) -> None:
    """Wait for something that happens in another thread."""
    assert await asyncio.to_thread(holds.wait, 60)
