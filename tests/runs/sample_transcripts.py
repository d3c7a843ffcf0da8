"""Small runs built by hand, for the tests of the floor `runs`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from runs.config import Limits, RunConfig, Spending
from runs.events import (
    BudgetSpent,
    Ended,
    EndReason,
    Event,
    ModelReplied,
    RolloutStarted,
    Submitted,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.log import TranscriptLog
from runs.store import RunDirectory, create_run
from tasks.spec import Precision, Target
from tools.briefing import Briefing, Machine
from tools.candidate import Candidate
from tools.results import (
    Baseline,
    Built,
    Diagnostic,
    Evaluation,
    Fault,
    Interval,
    Timed,
    ToolReply,
    ToolResult,
    Verified,
)
from tools.verdict import Verdict

BEGAN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
BROKEN = Candidate("import torch\nclass ModelNew(:\n")
GOOD = Candidate("import torch\nclass ModelNew(torch.nn.Module):\n    pass\n")
MACHINE = Machine(
    device="Test processor",
    cores=2,
    cache_bytes=2**20,
    peak_bytes_per_s=1e10,
    peak_flops_per_s=1e11,
    torch="2.14",
    python="3.11",
)
BRIEFING = Briefing(
    task="causal_conv",
    title="Causal convolution",
    mode="train",
    target=Target.CPU,
    precision=Precision.FP32,
    source="class Model: ...\n",
    sizes={"N": 2},
    input_shapes={"x": (2, 4, 8)},
    parameters={"conv.weight": (4, 4, 4)},
    notes="",
    machine=MACHINE,
    flop_count=1000,
    byte_count=2000,
    floor_ns=200.0,
    baselines=(Baseline(name="eager", median_ns=4000.0),),
)


def config(run_id: str = "20260301-120000-abc123", task: str = "causal_conv") -> RunConfig:
    return RunConfig(
        id=run_id,
        created=BEGAN,
        task=task,
        task_argument=task,
        target=Target.CPU,
        model="test-model",
        rollouts=1,
        limits=Limits(turns=5),
        versions={"python": "3.11.7"},
        machine=MACHINE,
        provenance="built by hand for a test",
    )


def syntax_error() -> Fault:
    return Fault(
        stage="build",
        verdict=Verdict.BUILD_FAILED,
        message="candidate.py:2: invalid syntax",
        candidate=BROKEN.id,
        diagnostics=(Diagnostic(severity="error", message="invalid syntax", line=2),),
    )


def built() -> Built:
    return Built(candidate=GOOD.id, extensions=(), sandbox="none", seconds=3.0)


def timed() -> Timed:
    return Timed(
        candidate=GOOD.id,
        median_ns=2000.0,
        baseline="eager",
        baseline_ns=4000.0,
        speedup=2.0,
        speedup_interval=Interval(low=1.9, high=2.1),
        baselines=(Baseline(name="eager", median_ns=4000.0),),
        floor_ns=None,
        prepare_ns=0,
        wall_median_ns=2100.0,
        candidate_samples_ns=((2000, 2000),),
        baseline_samples_ns=((4000, 4000),),
        sandbox="none",
        seconds=1.0,
    )


def evaluation() -> Evaluation:
    verified = Verified(candidate=GOOD.id, precision=Precision.FP32, checks=(), sandbox="none", seconds=1.0)
    return Evaluation(
        candidate=GOOD.id, task="causal_conv", target=Target.CPU, build=built(), verify=verified, benchmark=timed()
    )


def reply_of(result: ToolResult, candidate: Candidate, *, ends: bool = False) -> ToolReply:
    return ToolReply(text=f"the tool said {result.status}", result=result, candidate=candidate.id, ends_rollout=ends)


def events() -> list[Event]:
    """Two turns: a candidate that does not compile; then the repaired one, compiled and submitted in one reply."""
    first = ToolCall(id="a", name="compile_kernel", arguments=json.dumps({"kernel_code": BROKEN.text}))
    second = ToolCall(id="b", name="compile_kernel", arguments=json.dumps({"kernel_code": GOOD.text}))
    third = ToolCall(id="c", name="submit", arguments="{}")
    usage = Usage(input_tokens=100, output_tokens=20)
    return [
        RolloutStarted(
            turn=0,
            time=BEGAN,
            rollout="rollout-1",
            task="causal_conv",
            target=Target.CPU,
            model="test-model",
            limits=Limits(turns=5),
            system_prompt="You write kernels.",
            opening="Begin.",
            tools=({"type": "function", "function": {"name": "submit"}},),
            briefing=BRIEFING,
        ),
        _reply(1, "Let me try.", "I think of shared memory.", (first,), usage),
        _result(1, first, reply_of(syntax_error(), BROKEN)),
        BudgetSpent(turn=1, spent=Spending(turns=1, seconds=10.0), left=Limits(turns=4), time=BEGAN),
        _reply(2, "Repaired.", "", (second, third), usage),
        _result(2, second, reply_of(built(), GOOD)),
        _result(2, third, reply_of(evaluation(), GOOD, ends=True)),
        Submitted(turn=2, candidate=GOOD.id, evaluation=evaluation(), time=BEGAN),
        BudgetSpent(turn=2, spent=Spending(turns=2, seconds=30.0), left=Limits(turns=3), time=BEGAN),
        Ended(turn=2, reason=EndReason.SUBMITTED, message="correct", time=BEGAN + timedelta(seconds=31)),
    ]


def _reply(turn: int, text: str, reasoning: str, calls: tuple[ToolCall, ...], usage: Usage) -> ModelReplied:
    return ModelReplied(
        turn=turn,
        time=BEGAN,
        text=text,
        reasoning=reasoning,
        tool_calls=calls,
        usage=usage,
        finish_reason="tool_calls",
        raw={"id": f"reply-{turn}"},
        seconds=4.0,
        cost_usd=None,
    )


def _result(turn: int, call: ToolCall, reply: ToolReply) -> ToolReturned:
    return ToolReturned(turn=turn, time=BEGAN, call_id=call.id, tool=call.name, reply=reply, executed=True, seconds=3.0)


def write_run(root: Path, run_id: str = "20260301-120000-abc123", task: str = "causal_conv") -> RunDirectory:
    """The events above as a run on disk."""
    run = create_run(root, config(run_id, task))
    with TranscriptLog(run.transcript("rollout-1")) as log:
        for event in events():
            log.append(event)
    return run
