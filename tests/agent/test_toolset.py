"""The two tools that need no machine: guides are read, and a candidate is laid beside the best so far."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from scripted import briefing

from agent.toolset import DIFF_LINES, Toolset
from runs.config import Limits
from runs.events import Event, ModelReplied, RolloutStarted, ToolCall, ToolReturned, Usage
from runs.origin import Origin
from tasks.spec import Target
from tools.candidate import Candidate
from tools.results import Built, Fault, Interval, Refused, Timed, ToolReply, ToolResult
from tools.text_results import Compared, GuideRead
from tools.verdict import Verdict

SLOW, FAST, LATE = (Candidate(f"import torch\nx = {number}\ny = 0\n") for number in (1, 2, 3))
NOW = datetime(2026, 11, 30, tzinfo=UTC)


class Shelf:
    """A toolbox that holds the three candidates and nothing else."""

    def definitions(self) -> list[dict[str, object]]:
        return [{"type": "function", "function": {"name": "verify"}}]

    def call(self, name: str, arguments: str) -> ToolReply:
        return ToolReply(text=f"{name} {arguments}", result=Refused(message=name))

    def candidate_text(self, candidate_id: str) -> str:
        return {each.id: each.text for each in (SLOW, FAST, LATE)}[candidate_id]

    def remember(self, text: str) -> None:
        raise AssertionError(text)


def built(candidate: Candidate) -> Built:
    return Built(candidate=candidate.id, extensions=(), sandbox="none", seconds=1.0)


def timed(candidate: Candidate, speedup: float) -> Timed:
    return Timed(
        candidate=candidate.id,
        median_ns=80_000.0 / speedup,
        baseline="eager",
        baseline_ns=80_000.0,
        speedup=speedup,
        speedup_interval=Interval(low=speedup * 0.99, high=speedup * 1.01),
        baselines=(),
        floor_ns=None,
        prepare_ns=0,
        wall_median_ns=80_000.0 / speedup,
        candidate_samples_ns=((1,),),
        baseline_samples_ns=((1,),),
        sandbox="none",
        seconds=1.0,
    )


def events(*results: ToolResult, parents: tuple[str, ...] = ()) -> list[Event]:
    """A rollout in which these results were returned, a turn each."""
    told: list[Event] = [
        RolloutStarted(
            turn=0,
            rollout="rollout-1",
            task="causal_conv",
            target=Target.CPU,
            model="m",
            limits=Limits(),
            system_prompt="",
            opening="",
            tools=(),
            briefing=briefing(),
            time=NOW,
            origin=Origin(strategy="refine", parents=parents),
        )
    ]
    for turn, result in enumerate(results, start=1):
        tool = "compile_kernel" if isinstance(result, Built) else "benchmark"
        call = ToolCall(id=str(turn), name=tool, arguments="{}")
        told.append(
            ModelReplied(
                turn=turn,
                text=f"idea {turn}",
                reasoning="",
                tool_calls=(call,),
                usage=Usage(),
                finish_reason="tool_calls",
                raw={},
                seconds=1.0,
                cost_usd=None,
                time=NOW,
            )
        )
        candidate = result.candidate if isinstance(result, Built | Timed | Fault) else None
        reply = ToolReply(text="", result=result, candidate=candidate)
        told.append(
            ToolReturned(turn=turn, call_id=call.id, tool=tool, reply=reply, executed=True, seconds=1.0, time=NOW)
        )
    return told


def toolset(history: Sequence[Event]) -> Toolset:
    return Toolset(Shelf(), lambda: history)


MEASURED: list[ToolResult] = [built(SLOW), timed(SLOW, 0.5), built(FAST), timed(FAST, 2.0), built(LATE)]


def test_the_latest_is_compared_with_the_best() -> None:
    reply = toolset(events(*MEASURED)).call("diff_best", "")
    assert reply.result == Compared(candidate=LATE.id, best=FAST.id)
    assert reply.candidate == LATE.id
    heading, *diff = reply.text.splitlines()
    assert heading == (
        f"candidate {LATE.id[:12]} (built) against the best so far, "
        f"{FAST.id[:12]} (correct, 40 us, 2.00x (1.98 to 2.02)):"
    )
    assert diff == [
        f"--- best {FAST.id[:12]}",
        f"+++ {LATE.id[:12]}",
        "@@ -1,3 +1,3 @@",
        " import torch",
        "-x = 2",
        "+x = 3",
        " y = 0",
    ]


def test_a_candidate_may_be_named_by_the_beginning_of_its_id() -> None:
    reply = toolset(events(*MEASURED)).call("diff_best", json.dumps({"candidate": SLOW.id[:8]}))
    assert reply.result == Compared(candidate=SLOW.id, best=FAST.id)
    assert f"candidate {SLOW.id[:12]} (correct, 160 us, 0.50x" in reply.text


def test_what_was_found_wrong_is_never_the_best() -> None:
    stale = Fault(stage="benchmark", verdict=Verdict.STALE_OUTPUT, message="", candidate=FAST.id)
    reply = toolset(events(*MEASURED, stale)).call("diff_best", "")
    assert reply.result == Compared(candidate=LATE.id, best=SLOW.id)


def test_before_any_measurement_the_best_is_what_the_rollout_began_with() -> None:
    reply = toolset(events(built(LATE), parents=(FAST.id, SLOW.id))).call("diff_best", "{}")
    assert reply.result == Compared(candidate=LATE.id, best=FAST.id)
    assert f"{FAST.id[:12]} (this conversation began with it)" in reply.text


def test_a_long_difference_is_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {FAST.id: "\n".join(f"a{i}" for i in range(300)), LATE.id: "\n".join(f"b{i}" for i in range(300))}
    monkeypatch.setattr(Shelf, "candidate_text", lambda _, key: long[key])
    lines = toolset(events(*MEASURED)).call("diff_best", "").text.splitlines()
    assert len(lines) == DIFF_LINES + 2
    # Two lines of heading and one of place, then 300 removed and 300 added.
    assert lines[-1] == f"and {603 - DIFF_LINES} more lines"


@pytest.mark.parametrize(
    ("history", "arguments", "message"),
    [
        (events(built(LATE)), "", "no candidate has been timed yet, so none is the best"),
        (events(parents=(FAST.id,)), "", "nothing has been compiled yet; call compile_kernel first"),
        (events(*MEASURED[:4]), "", "is the best so far itself"),
        (events(*MEASURED), '{"candidate": "zz"}', "no candidate with the id 'zz'; compiled so far: "),
        (events(*MEASURED), '{"candidate": 3}', "the arguments of diff_best do not fit: candidate: "),
    ],
)
def test_what_cannot_be_compared_is_said(history: Sequence[Event], arguments: str, message: str) -> None:
    reply = toolset(history).call("diff_best", arguments)
    assert isinstance(reply.result, Refused)
    assert message in reply.text


def test_guides_are_listed_and_read() -> None:
    tools = toolset([])
    listed = tools.call("read_guide", "")
    assert listed.result == GuideRead()
    assert "- depthwise: Depthwise convolutions: memory sets the time" in listed.text
    read = tools.call("read_guide", '{"name": "depthwise"}')
    assert read.result == GuideRead(name="depthwise")
    assert read.text.startswith("# Depthwise convolutions")
    for wrong in ("../prompts/system", "Depthwise", ""):
        refused = tools.call("read_guide", json.dumps({"name": wrong}))
        assert isinstance(refused.result, Refused)
        assert "the guides are:\n- building-fast" in refused.text


def test_all_other_calls_are_the_toolboxs() -> None:
    tools = toolset([])
    assert tools.call("verify", "{}").text == "verify {}"
    names = [item["function"]["name"] for item in json.loads(json.dumps(tools.definitions()))]
    assert names == ["verify", "read_guide", "diff_best"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("x" * 10_000, {}),
        ("read_guide", {"name": "x" * 10_000}),
        ("diff_best", {"candidate": "x" * 10_000}),
        ("diff_best", {"x" * 10_000: 1}),
    ],
)
def test_what_a_model_makes_up_is_not_repeated_at_length(name: str, arguments: dict[str, object]) -> None:
    reply = toolset(events(built(FAST), timed(FAST, 2.0))).call(name, json.dumps(arguments))
    assert isinstance(reply.result, Refused)
    assert "xxx" in reply.text and len(reply.text) < 1_500
