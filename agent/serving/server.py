"""The MCP server: lists the tools, hands calls to the desk, and reports progress while they are carried out."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import anyio
import mcp_types as mcp
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from agent.prompt import phrase, rollout_over
from agent.serving import answers
from agent.serving.caller import RolloutOverError
from agent.serving.desk import Desk, Seat
from runs.surroundings import versions
from tasks.errors import KernelwrightError
from tools.toolbox import problems

Context = ServerRequestContext[None, Any]
Result = TypeVar("Result")
PROGRESS_EVERY_S = 3.0
"""Clients give a silent call up after a minute; some show the message."""
SESSION_HEADER = "mcp-session-id"
TASKS = "kernelwright://tasks/"
BRIEFING = "kernelwright://briefing"
UNNAMED = "an unnamed MCP client"


def make_server(desk: Desk, at_end: str) -> Server[None]:
    """A server on a desk, which is closed with it: over HTTP when it is stopped, else when its one connection ends.

    Args:
        desk: where the rollouts are.
        at_end: how rollouts that still go on then are said to have ended.
    """

    @asynccontextmanager
    async def lifespan(_: Server[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                desk.stop(at_end)
                await asyncio.to_thread(desk.close)

    handlers = _Handlers(desk)
    return Server(
        "kernelwright",
        version=versions().get("kernelwright", ""),
        title="Kernelwright",
        instructions=phrase("instructions"),
        lifespan=lifespan,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_read_resource=handlers.read_resource,
    )


class _Handlers:
    """The requests of the protocol."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._tools = answers.tools()

    async def list_tools(self, ctx: Context, params: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:  # noqa: ARG002
        return mcp.ListToolsResult(tools=self._tools)

    async def call_tool(self, ctx: Context, params: mcp.CallToolRequestParams) -> mcp.CallToolResult:
        arguments = params.arguments or {}
        try:
            if params.name == answers.START:
                asked = answers.StartTaskArguments.model_validate(arguments)
                seat = await self._begin(ctx, asked.task, anew=True)
                return answers.beginning(
                    seat.task.name, self._desk.target.value, seat.run.path, seat.transcript, seat.told
                )
            seat_or_none = self._desk.seat(_session(ctx))
            if seat_or_none is None and self._desk.only is None:
                return answers.refusal(phrase("not_begun"))
            seat = seat_or_none or await self._begin(ctx, None, anew=False)
            call = seat.caller.call(params.name, json.dumps(arguments))
            return answers.answer_of(await self._patiently(ctx, call))
        except RolloutOverError as error:
            return answers.refusal(rollout_over(str(error)))
        except ValidationError as error:
            return answers.refusal(f"the arguments of {params.name} do not fit: {problems(error)}.")
        except KernelwrightError as error:
            return answers.refusal(f"{params.name}: {error}")

    async def list_resources(self, ctx: Context, params: mcp.PaginatedRequestParams | None) -> mcp.ListResourcesResult:  # noqa: ARG002
        tasks = [
            mcp.Resource(uri=TASKS + task.name, name=task.name, description=task.facts.title, mime_type="text/x-python")
            for task in self._desk.tasks
        ]
        seat = self._desk.seat(_session(ctx))
        briefing = [] if seat is None else [_briefing(seat)]
        return mcp.ListResourcesResult(resources=[*briefing, *tasks])

    async def read_resource(self, ctx: Context, params: mcp.ReadResourceRequestParams) -> mcp.ReadResourceResult:
        texts = {TASKS + task.name: ("text/x-python", task.source) for task in self._desk.tasks}
        seat = self._desk.seat(_session(ctx))
        if seat is not None:
            texts[BRIEFING] = "text/markdown", seat.told
        if params.uri not in texts:
            raise MCPError(mcp.INVALID_PARAMS, f"there is no resource {params.uri}; there are {', '.join(texts)}.")
        kind, text = texts[params.uri]
        return mcp.ReadResourceResult(
            contents=[mcp.TextResourceContents(uri=params.uri, mime_type=kind, text=text)],
        )

    async def _begin(self, ctx: Context, task: str | None, *, anew: bool) -> Seat:
        begin = partial(self._desk.begin, _session(ctx), _client(ctx), task, anew=anew)
        return await self._reporting(ctx, asyncio.get_running_loop().run_in_executor(None, begin))

    async def _patiently(self, ctx: Context, call: "Future[Result]") -> Result:
        return await self._reporting(ctx, asyncio.wrap_future(call))

    async def _reporting(self, ctx: Context, waiting: "asyncio.Future[Result]") -> Result:
        """Wait, and say every few seconds that it goes on. If the client gives up, a call that waits for its turn is
        withdrawn; one that is being carried out goes on, because the transcript must hold what came of it."""
        began = time.monotonic()
        try:
            while not (await asyncio.wait({waiting}, timeout=PROGRESS_EVERY_S))[0]:
                await ctx.session.report_progress(time.monotonic() - began, None, self._desk.doing or "working")
        except BaseException:
            waiting.cancel()
            raise
        return waiting.result()


def _session(ctx: Context) -> str | None:
    """What tells clients of one server apart: over HTTP, the session that they were given; else there is only one."""
    return None if ctx.request is None else ctx.request.headers.get(SESSION_HEADER)


def _client(ctx: Context) -> str:
    params = ctx.session.client_params
    return UNNAMED if params is None else f"{params.client_info.name} {params.client_info.version}".strip()


def _briefing(seat: Seat) -> mcp.Resource:
    return mcp.Resource(
        uri=BRIEFING, name="briefing", description=f"The task {seat.task.name}", mime_type="text/markdown"
    )
