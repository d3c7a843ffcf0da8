"""Tests of the MCP server with a client of the SDK in memory, and tools that follow a script."""

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs the MCP SDK: pip install -e '.[mcp]'")

from mcp import MCPError
from mcp.client.client import Client
from mcp_types import CallToolResult, Implementation, TextContent
from scripted import ScriptedTools
from serving_bench import CODE, TASK, GatedTools, Shop, until

from agent.serving import bench, server
from agent.serving.desk import BEGAN_ANEW, DISCONNECTED
from agent.toolset import definitions
from runs.config import Driver
from runs.events import Culprit, Ended, EndReason, ModelReplied, RolloutStarted, Submitted, ToolReturned
from runs.summary import summarize
from tools.results import Built, Evaluation
from tools.verdict import Verdict

ME = Implementation(name="some-agent", version="2.1")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(monkeypatch, tmp_path)


def said(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_drives_a_rollout_that_is_written_down_as_any_other(shop: Shop, mode: str) -> None:
    async def drive() -> list[CallToolResult]:
        async with shop.client(mode, ME) as client:
            built = await client.call_tool("compile_kernel", {"kernel_code": CODE})
            return [built, await client.call_tool("benchmark"), await client.call_tool("submit")]

    built, timed, submitted = asyncio.run(drive())
    assert [result.is_error for result in (built, timed, submitted)] == [False] * 3
    assert built.structured_content["outcome"]["verdict"] == "built"
    assert timed.structured_content["outcome"]["speedup"] == 2.0
    assert said(timed) == timed.structured_content["text"] == "2.0x"
    assert [result.structured_content["over"] for result in (built, timed, submitted)] == [False, False, True]
    assert "start_task" in said(submitted)

    events = shop.events()
    began, ended = events[0], events[-1]
    assert isinstance(began, RolloutStarted) and began.model == "some-agent 2.1"
    replies = [event for event in events if isinstance(event, ModelReplied)]
    assert [reply.tool_calls[0].name for reply in replies] == ["compile_kernel", "benchmark", "submit"]
    assert json.loads(replies[0].tool_calls[0].arguments) == {"kernel_code": CODE}
    results = [event.reply.result for event in events if isinstance(event, ToolReturned)]
    assert isinstance(results[0], Built) and isinstance(results[-1], Evaluation)
    assert sum(isinstance(event, Submitted) for event in events) == 1
    assert isinstance(ended, Ended) and ended.reason is EndReason.SUBMITTED
    (run,) = shop.runs()
    assert run.candidate_text(results[0].candidate) == CODE
    config = run.config()
    assert (config.driver, config.model, config.task) == (Driver.CLIENT, "some-agent 2.1", TASK)
    spent = summarize(events).spent
    assert spent is not None and (spent.turns, spent.tokens) == (3, 0)


def test_the_tools_are_those_of_the_loop_with_their_words(shop: Shop) -> None:
    async def ask() -> dict[str, tuple[str | None, object]]:
        async with shop.client() as client:
            return {tool.name: (tool.description, tool.input_schema) for tool in (await client.list_tools()).tools}

    listed = asyncio.run(ask())
    assert listed.pop("start_task")
    functions = [each["function"] for each in definitions()]
    assert listed == {each["name"]: (each["description"], each["parameters"]) for each in functions}  # type: ignore[index]


def test_hints_say_which_tools_only_look(shop: Shop) -> None:
    async def ask() -> set[str]:
        async with shop.client() as client:
            listed = (await client.list_tools()).tools
            return {tool.name for tool in listed if not (tool.annotations and tool.annotations.read_only_hint)}

    assert asyncio.run(ask()) == {"start_task", "compile_kernel", "submit"}


def test_a_refused_call_is_an_error_and_a_candidates_fault_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(monkeypatch, tmp_path, ScriptedTools(verdict=Verdict.INCORRECT))

    async def drive() -> list[CallToolResult]:
        async with shop.client() as client:
            refused = [await client.call_tool("submit"), await client.call_tool("bogus")]
            built = await client.call_tool("compile_kernel", {"kernel_code": CODE})
            return [*refused, built, await client.call_tool("submit")]

    early, unknown, built, wrong = asyncio.run(drive())
    assert [result.is_error for result in (early, unknown, built, wrong)] == [True, True, False, False]
    assert "there is no tool 'bogus'; the tools are compile_kernel" in said(unknown)
    assert wrong.structured_content["outcome"]["verdict"] == "incorrect"


def test_a_fault_of_the_machine_ends_the_rollout_and_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(monkeypatch, tmp_path, ScriptedTools(verdict=Verdict.UNAVAILABLE))

    async def drive() -> CallToolResult:
        async with shop.client() as client:
            await client.call_tool("compile_kernel", {"kernel_code": CODE})
            return await client.call_tool("submit", {})

    assert asyncio.run(drive()).is_error
    ended = shop.events()[-1]
    assert isinstance(ended, Ended) and (ended.reason, ended.culprit) == (EndReason.TOOL_FAULT, Culprit.MACHINE)


def test_without_a_task_of_its_own_a_server_has_the_client_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(monkeypatch, tmp_path, only=None)

    async def drive(client: Client) -> list[CallToolResult]:
        asked = [await client.call_tool("verify", {}), await client.call_tool("start_task", {})]
        for task in ("no_such_task", __file__, "conv_groupnorm", "causal_conv"):
            asked.append(await client.call_tool("start_task", {"task": task}))
        asked.append(await client.call_tool("start_task", {"tusk": "causal_conv"}))
        return asked

    async def ask() -> list[CallToolResult]:
        async with shop.client() as client:
            return await drive(client)

    early, nameless, unknown, path, other, chosen, misspelt = asyncio.run(ask())
    assert early.is_error and "start_task" in said(early)
    assert nameless.is_error and "causal_conv, conv_groupnorm" in said(nameless)
    assert unknown.is_error and path.is_error and misspelt.is_error and "tusk" in said(misspelt)
    assert not other.is_error and not chosen.is_error
    assert chosen.structured_content["task"] == "causal_conv"
    assert Path(chosen.structured_content["transcript"]).is_file()
    assert "You write fast kernels" in said(chosen)
    assert shop.opened == ["conv_groupnorm", "conv_groupnorm closed", "causal_conv", "causal_conv closed"]
    ends = {run.config().task: run.events("rollout-1")[-1] for run in shop.runs()}
    assert {task: end.message for task, end in ends.items() if isinstance(end, Ended)} == {
        "conv_groupnorm": BEGAN_ANEW,
        "causal_conv": DISCONNECTED,
    }


def test_a_server_for_one_task_starts_no_other(shop: Shop) -> None:
    async def ask() -> CallToolResult:
        async with shop.client() as client:
            return await client.call_tool("start_task", {"task": "conv_groupnorm"})

    refused = asyncio.run(ask())
    assert refused.is_error and f"no task 'conv_groupnorm' here, but {TASK}." in said(refused)
    assert shop.runs() == []


def test_tasks_and_the_briefing_are_resources(shop: Shop) -> None:
    async def read() -> tuple[list[str], list[str], str]:
        async with shop.client() as client:
            before = [str(each.uri) for each in (await client.list_resources()).resources]
            await client.call_tool("start_task", {})
            after = [str(each.uri) for each in (await client.list_resources(cache_mode="bypass")).resources]
            (source,) = (await client.read_resource("kernelwright://tasks/causal_conv")).contents
            with pytest.raises(MCPError, match="there is no resource kernelwright://tasks/none"):
                await client.read_resource("kernelwright://tasks/none")
            return before, after, source.text  # type: ignore[union-attr]

    before, after, source = asyncio.run(read())
    assert "kernelwright://tasks/causal_conv" in before
    assert set(after) - set(before) == {"kernelwright://briefing"}
    assert "class Model(nn.Module)" in source


def test_progress_is_reported_while_a_call_is_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PROGRESS_EVERY_S", 0.02)
    tools = GatedTools()
    shop = Shop(monkeypatch, tmp_path, tools)
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        heard.append((progress, message))
        if len(heard) == 3:
            tools.gate.set()

    async def drive() -> None:
        async with shop.client() as client:
            await client.call_tool("start_task", {})
            await client.call_tool("verify", {}, progress_callback=hear)

    asyncio.run(drive())
    assert len(heard) >= 3
    times = [progress for progress, _ in heard]
    assert times == sorted(set(times))
    assert {message for _, message in heard} == {"carrying out verify"}


def test_first_calls_that_come_at_once_begin_one_rollout(shop: Shop) -> None:
    async def drive() -> list[CallToolResult]:
        async with shop.client() as client:
            codes = [f"{CODE}  # {number}" for number in range(5)]
            calls = [client.call_tool("compile_kernel", {"kernel_code": code}) for code in codes]
            return await asyncio.gather(*calls)

    assert not any(result.is_error for result in asyncio.run(drive()))
    assert sum(isinstance(event, ToolReturned) for event in shop.events()) == 5


def test_calls_at_once_are_carried_out_one_after_the_other_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = GatedTools()
    shop = Shop(monkeypatch, tmp_path, tools)
    codes = [f"{CODE}  # {number}" for number in range(6)]

    async def drive() -> list[CallToolResult]:
        async with shop.client() as client:
            await client.call_tool("start_task", {})
            slow = asyncio.create_task(client.call_tool("verify", {}))
            await until(tools.entered)
            calls = [asyncio.create_task(client.call_tool("compile_kernel", {"kernel_code": code})) for code in codes]
            await asyncio.sleep(0.1)
            tools.gate.set()
            return await asyncio.gather(slow, *calls)

    results = asyncio.run(drive())
    assert tools.at_once == [1] * 7
    assert [json.loads(arguments).get("kernel_code") for _, arguments in tools.calls] == [None, *codes]
    assert len({result.structured_content["candidate"] for result in results[1:]}) == len(codes)
    turns = [event.turn for event in shop.events() if isinstance(event, ToolReturned)]
    assert turns == [1, 2, 3, 4, 5, 6, 7]


def test_a_call_given_up_while_it_waits_is_withdrawn_and_one_given_up_later_is_still_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = GatedTools()
    shop = Shop(monkeypatch, tmp_path, tools)

    async def drive() -> CallToolResult:
        async with shop.client() as client:
            await client.call_tool("start_task", {})
            running = asyncio.create_task(client.call_tool("verify", {}))
            await until(tools.entered)
            waiting = asyncio.create_task(client.call_tool("compile_kernel", {"kernel_code": "withdrawn"}))
            await asyncio.sleep(0.1)
            for given_up in (waiting, running):
                given_up.cancel()
                await asyncio.gather(given_up, return_exceptions=True)
            tools.gate.set()
            return await client.call_tool("compile_kernel", {"kernel_code": CODE})

    assert not asyncio.run(drive()).is_error
    assert [name for name, _ in tools.calls] == ["verify", "compile_kernel"]
    assert [event.tool for event in shop.events() if isinstance(event, ToolReturned)] == ["verify", "compile_kernel"]


def test_a_client_that_leaves_ends_its_rollout_even_while_a_call_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "CLOSING_S", 0.05)
    tools = GatedTools()
    shop = Shop(monkeypatch, tmp_path, tools)

    async def drive() -> None:
        async with shop.client(mode="legacy") as client:
            await client.call_tool("start_task", {})
            pending = asyncio.create_task(client.call_tool("verify", {}))
            await until(tools.entered)
        await asyncio.gather(pending, return_exceptions=True)

    asyncio.run(drive())
    try:
        events = shop.events()
        ended = events[-1]
        assert isinstance(ended, Ended) and (ended.reason, ended.culprit) == (EndReason.INTERRUPTED, Culprit.PERSON)
        assert ended.message == DISCONNECTED
        assert not any(isinstance(event, ToolReturned) for event in events)
    finally:
        tools.gate.set()
