"""A client of the SDK drives a whole rollout on the host, over standard input and output, with the judge itself."""

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs the MCP SDK: pip install -e '.[mcp]'")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult
from test_serving_processes import ENVIRONMENT, end_below, events_below

from runs.events import EndReason, RolloutStarted, ToolReturned
from runs.summary import summarize
from tools.results import Built, Evaluation, Verified

TESTS = Path(__file__).resolve().parents[1]
TASK = TESTS / "attacks/tasks/causal_silu.py"
CANDIDATE = TESTS / "honest/cpu/plain.py"
MEASURED = ("correct", "implausible_time")
"""What a right candidate gets when it is timed; the second where the machine was too busy to time anything."""


def test_a_client_has_a_candidate_built_verified_timed_and_submitted(tmp_path: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(TESTS.parent / "kernelwright.py"), "serve", str(TASK), "--target", "cpu", "--out", str(tmp_path)],
        env=ENVIRONMENT,
    )

    async def drive() -> list[CallToolResult]:
        async with Client(server) as client:
            begun = await client.call_tool("start_task")
            built = await client.call_tool("compile_kernel", {"kernel_code": CANDIDATE.read_text()})
            return [begun, built, *[await client.call_tool(name) for name in ("verify", "benchmark", "submit")]]

    begun, built, verified, timed, submitted = asyncio.run(drive())
    assert not any(result.is_error for result in (begun, built, verified, timed, submitted))
    assert begun.structured_content["task"] == "causal_silu"
    assert "The time to beat is" in begun.structured_content["text"]
    assert built.structured_content["outcome"]["verdict"] == "built"
    assert verified.structured_content["outcome"]["verdict"] == "correct"
    assert timed.structured_content["outcome"]["verdict"] in MEASURED
    assert submitted.structured_content["outcome"]["verdict"] in MEASURED

    events = events_below(tmp_path)
    assert isinstance(events[0], RolloutStarted) and events[0].briefing is not None and events[0].briefing.baselines
    results = [event.reply.result for event in events if isinstance(event, ToolReturned)]
    assert [type(results[place]) for place in (0, 1, 3)] == [Built, Verified, Evaluation]
    spent = summarize(events).spent
    assert spent is not None and spent.gpu_seconds > 0
    assert end_below(tmp_path)[0] is EndReason.SUBMITTED
