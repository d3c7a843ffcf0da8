"""Tests of the rollouts of several client sessions at one server."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs the MCP SDK: pip install -e '.[mcp]'")

from scripted import ScriptedTools
from serving_bench import CODE, Shop

from agent.serving.caller import RolloutOverError
from agent.serving.desk import DISCONNECTED, STOPPED
from runs.events import Ended
from tasks.errors import StoppedError, UsageError
from tools.results import ToolReply

COMPILE = json.dumps({"kernel_code": CODE})


class WatchedTools(ScriptedTools):
    """Notes how many calls were carried out at once."""

    inside = 0
    at_once: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.at_once = []

    def call(self, name: str, arguments: str) -> ToolReply:
        self.inside += 1
        self.at_once.append(self.inside)
        time.sleep(0.02)
        reply = super().call(name, arguments)
        self.inside -= 1
        return reply


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(monkeypatch, tmp_path, WatchedTools(), only=None)


def test_sessions_share_one_judge_and_wait_for_each_other(shop: Shop) -> None:
    seats = [shop.desk.begin(name, name, "causal_conv", anew=True) for name in ("a", "b", "c")]
    with ThreadPoolExecutor(3) as threads:
        for seat in seats:
            threads.submit(
                lambda caller: [caller.call("compile_kernel", COMPILE).result() for _ in range(4)], seat.caller
            )
    shop.desk.stop(STOPPED)
    shop.desk.close()
    assert isinstance(shop.tools, WatchedTools)
    assert shop.tools.at_once == [1] * 12
    assert shop.opened == ["causal_conv", "causal_conv closed"]
    assert {seat.run.config().model for seat in seats} == {"a", "b", "c"}
    assert len(shop.runs()) == 3


def test_another_task_waits_until_nobody_works_on_the_first(shop: Shop) -> None:
    first = shop.desk.begin("a", "a", "causal_conv", anew=True)
    with pytest.raises(UsageError, match="another client of this server works on causal_conv"):
        shop.desk.begin("b", "b", "conv_groupnorm", anew=True)
    shop.desk.leave("a")
    first.thread.join(60)
    assert shop.desk.begin("b", "b", "conv_groupnorm", anew=True).task.name == "conv_groupnorm"
    shop.desk.stop(STOPPED)
    shop.desk.close()
    ended = first.run.events("rollout-1")[-1]
    assert isinstance(ended, Ended) and ended.message == DISCONNECTED


def test_after_the_end_calls_and_beginnings_say_so(shop: Shop) -> None:
    seat = shop.desk.begin("a", "a", "causal_conv", anew=True)
    shop.desk.stop(STOPPED)
    assert shop.desk.close()
    with pytest.raises(RolloutOverError, match=STOPPED):
        seat.caller.call("compile_kernel", COMPILE).result(60)
    with pytest.raises(StoppedError, match=STOPPED):
        shop.desk.begin("b", "b", "causal_conv", anew=True)
    shop.desk.stop(STOPPED)
    assert shop.desk.close()


def test_a_run_that_can_no_longer_be_written_is_said_to_whoever_calls(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = shop.desk.begin("a", "a", "causal_conv", anew=True)
    full = OSError(28, "No space left on device")

    def fail(*_: object) -> None:
        raise full

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RolloutOverError, match="No space left on device"):
        seat.caller.call("compile_kernel", COMPILE).result(60)
    monkeypatch.undo()
    shop.desk.stop(STOPPED)
    shop.desk.close()
