"""Rollouts with known histories, for the tests of strategies and sessions."""

import json

from agent.ledger import Ledger
from agent.strategies.strategy import Past
from runs.events import Event, ModelReplied, ToolCall, ToolReturned, Usage
from runs.origin import Origin
from runs.strategy_name import StrategyName
from tools.candidate import Candidate
from tools.results import Baseline, Built, Fault, Interval, Timed, ToolReply, ToolResult
from tools.verdict import Verdict


def timed(text: str, speedup: float, spread: float = 0.02, floor_ns: float | None = None) -> Timed:
    """A measurement of a candidate beside a baseline of 1 ms."""
    return Timed(
        candidate=Candidate(text).id,
        median_ns=1e6 / speedup,
        baseline="eager",
        baseline_ns=1e6,
        speedup=speedup,
        speedup_interval=Interval(low=speedup * (1 - spread), high=speedup * (1 + spread)),
        baselines=(Baseline(name="eager", median_ns=1e6),),
        floor_ns=floor_ns,
        prepare_ns=0,
        wall_median_ns=1e6 / speedup,
        candidate_samples_ns=(),
        baseline_samples_ns=(),
        sandbox="none",
        seconds=1.0,
    )


def attempt(turn: int, text: str, speedup: float | None, spread: float = 0.02) -> list[Event]:
    """The events of a turn in which a candidate is compiled and timed; one without a speedup is found wrong."""
    candidate = Candidate(text).id
    result: ToolResult = Fault(stage="verify", verdict=Verdict.INCORRECT, message="wrong", candidate=candidate)
    if speedup is not None:
        result = timed(text, speedup, spread)
    call = ToolCall(id=f"c{turn}", name="compile_kernel", arguments=json.dumps({"kernel_code": text}))
    built = Built(candidate=candidate, extensions=(), sandbox="none", seconds=0.0)
    tool = "verify" if speedup is None else "benchmark"
    return [
        ModelReplied(
            turn=turn,
            text=f"idea of {text}",
            reasoning="",
            tool_calls=(call,),
            usage=Usage(),
            finish_reason="tool_calls",
            raw={},
            seconds=1.0,
            cost_usd=None,
        ),
        _returned(turn, "compile_kernel", built, candidate),
        _returned(turn, tool, result, candidate),
    ]


def past(
    name: str,
    *attempts: tuple[str, float | None],
    island: int | None = None,
    profiles: dict[str, str] | None = None,
) -> Past:
    """A rollout that tried some texts, each with its speedup, or None where it was wrong."""
    events = [event for turn, (text, speedup) in enumerate(attempts, 1) for event in attempt(turn, text, speedup)]
    texts = {Candidate(text).id: text for text, _ in attempts}
    told = {Candidate(text).id: said for text, said in (profiles or {}).items()}
    origin = Origin(strategy=StrategyName.EVOLVE, island=island)
    return Past(name, origin, Ledger(events), texts.__getitem__, told)


def _returned(turn: int, tool: str, result: ToolResult, candidate: str) -> ToolReturned:
    reply = ToolReply(text=tool, result=result, candidate=candidate)
    return ToolReturned(turn=turn, call_id=f"c{turn}", tool=tool, reply=reply, executed=True, seconds=1.0)
