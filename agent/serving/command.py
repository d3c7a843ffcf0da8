"""What `serve` does: offers the tools to others' agents over MCP, on standard input and output or over HTTP."""

import asyncio
import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from agent.serving.bench import Bench
from agent.serving.desk import DISCONNECTED, STOPPED, Desk
from runs.store import check_writable
from tasks.errors import UnavailableError
from tasks.loader import find_task
from tasks.spec import Target
from tools.required_sandbox import RequiredSandbox, require_sandbox

STOPPED_EXIT = 130
"""As after Ctrl-C."""


def serve_tools(
    task: str | None,
    *,
    target: Target | None,
    out: Path,
    address: tuple[str, int] | None,
    require: RequiredSandbox | None,
) -> None:
    """Serve until the client or a signal ends it.

    Args:
        task: the only one that is served; without it, clients choose among those that ship with the project.
        target: as of `run`.
        out: under which each rollout is kept as a run.
        address: where to listen for HTTP; None for standard input and output.
        require: the least sandbox, as of `run`.
    """
    if importlib.util.find_spec("mcp") is None:
        raise UnavailableError("`kernelwright serve` needs the MCP SDK. Install it: pip install -e '.[mcp]'")
    only = None if task is None else find_task(task)
    check_writable(out)
    # Finding out whether there is a GPU needs PyTorch; a wrong name is to be reported without waiting for its import.
    from tools.targets import default_target

    chosen = target or default_target()
    require_sandbox(require, chosen)
    ending = _Ending(Desk(Bench(chosen), out, only))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ending.stop)
    _serve(ending.desk, address)
    ending.leave()


def _serve(desk: Desk, address: tuple[str, int] | None) -> None:
    from mcp.server.stdio import stdio_server

    from agent.serving.server import make_server

    if address is not None:
        from agent.serving.over_http import serve_http

        serve_http(make_server(desk, STOPPED), desk, *address)
        return
    server = make_server(desk, DISCONNECTED)
    if sys.stdin.isatty():
        print("kernelwright: waiting for an MCP client on standard input; Ctrl-C ends it.", file=sys.stderr)

    async def talk() -> None:
        # While it is open, whatever else writes to standard output, children included, writes to standard error.
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(talk())


class _Ending:
    """The end of the program: rollouts first, and no waiting for a judge that still evaluates for nobody."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._code = 0

    def stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Handle a signal, in a thread of its own: the main thread may hold a lock, or wait for standard input."""
        self._code = STOPPED_EXIT
        threading.Thread(target=self.leave).start()

    def leave(self) -> None:
        """End the program."""
        self.desk.stop(STOPPED)
        self.desk.close()
        sys.stderr.flush()
        os._exit(self._code)
