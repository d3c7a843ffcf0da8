"""A model and tools that follow a script, for the tests of the floor `agent`."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from agent.budget import Budget
from agent.loop import Rollout
from agent.model import Message, ModelClient, ModelReply, Patience, ToolDefinition
from agent.resuming import resumed
from runs.accounting import spending_of
from runs.config import Limits, Prices
from runs.events import Ended, Event, RolloutStarted, ToolCall
from runs.store import RunDirectory
from tasks.spec import Precision, Target
from tools.briefing import Briefing, Machine
from tools.candidate import Candidate
from tools.results import Baseline, Built, Evaluation, Fault, Interval, Refused, Timed, ToolReply
from tools.verdict import Verdict

MACHINE = Machine(
    device="Test processor",
    cores=2,
    capability="avx2",
    cache_bytes=32 * 2**20,
    peak_bytes_per_s=2.5e10,
    peak_flops_per_s=None,
    torch="2.14.1",
    python="3.11.7",
)


def briefing(target: Target = Target.CPU, precision: Precision = Precision.FP32) -> Briefing:
    return Briefing(
        task="causal_conv",
        title="Causal convolution",
        mode="train",
        target=target,
        precision=precision,
        source="class Model:\n    marker = '{{ not_a_template }}'\n",
        sizes={"N": 2, "L": 512},
        input_shapes={"x": (2, 256, 512)},
        parameters={"conv.weight": (256, 256, 4), "steps": ()},
        notes="Outputs depend on the past only.",
        machine=MACHINE,
        flop_count=1_073_741_824,
        byte_count=3_145_728,
        floor_ns=126_000.0,
        baselines=(
            Baseline(name="eager", median_ns=9_000_000.0),
            Baseline(name="torch.compile", median_ns=7_500_000.0),
            Baseline(name="cudnn-autotuned", median_ns=None, note="no GPU"),
        ),
    )


def call(name: str, call_id: str = "call", **arguments: object) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=json.dumps(arguments))


def compile_call(code: str, call_id: str = "call") -> ToolCall:
    return call("compile_kernel", call_id, kernel_code=code)


def timed(candidate: str, speedup: float) -> Timed:
    """A measurement, as narrow as its speedup is wide from 1."""
    return Timed(
        candidate=candidate,
        median_ns=7_500_000.0 / speedup,
        baseline="torch.compile",
        baseline_ns=7_500_000.0,
        speedup=speedup,
        speedup_interval=Interval(low=0.9 * speedup, high=1.1 * speedup),
        baselines=(),
        floor_ns=126_000.0,
        prepare_ns=0,
        wall_median_ns=7_500_000.0 / speedup,
        candidate_samples_ns=(),
        baseline_samples_ns=(),
        sandbox="none",
        seconds=0.5,
    )


class ScriptedModel:
    """Gives the replies of a script; an exception in the script is raised in its place."""

    name = "scripted"

    def __init__(self, script: Sequence[ModelReply | BaseException]) -> None:
        self._script = list(script)
        self.asked: list[tuple[Message, ...]] = []
        """The conversation as it stood at each query."""
        self.patience: list[Patience] = []

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:  # noqa: ARG002
        self.asked.append(tuple(messages))
        self.patience.append(patience)
        step = self._script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step


class ScriptedTools:
    """Tools that build anything, submit anything, and refuse what a real toolbox refuses."""

    def __init__(
        self,
        verdict: Verdict | None = None,
        raises: BaseException | None = None,
        speedups: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """`speedups` are those that `benchmark` measures, by the text of the candidate."""
        self.calls: list[tuple[str, str]] = []
        self._verdict = verdict
        self._speedups = speedups
        self._raises = raises
        self._texts: dict[str, str] = {}
        self._last = ""

    def definitions(self) -> list[dict[str, object]]:
        names = ("compile_kernel", "submit")
        return [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]

    def candidate_text(self, candidate_id: str) -> str:
        return self._texts[candidate_id]

    def remember(self, text: str) -> None:
        self._last = Candidate(text).id
        self._texts[self._last] = text

    def call(self, name: str, arguments: str) -> ToolReply:
        self.calls.append((name, arguments))
        if self._raises is not None:
            raise self._raises
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            return self._refused("the arguments are not JSON")
        if not isinstance(parsed, dict):
            return self._refused("the arguments are no object")
        if name == "compile_kernel":
            candidate = Candidate(parsed["kernel_code"])
            self._texts[candidate.id] = candidate.text
            self._last = candidate.id
            built = Built(candidate=candidate.id, extensions=(), sandbox="none", seconds=0.0)
            return ToolReply(text="built", result=built, candidate=candidate.id)
        if name == "benchmark" and self._last:
            result = timed(self._last, self._speedups[self._texts[self._last]])
            return ToolReply(text=f"{result.speedup}x", result=result, candidate=self._last, device_seconds=0.5)
        if name == "submit" and self._last:
            evaluation = self._evaluation()
            return ToolReply(text="evaluated", result=evaluation, candidate=self._last, ends_rollout=True)
        return self._refused(f"cannot {name}")

    def _evaluation(self) -> Evaluation:
        result: Built | Fault = Built(candidate=self._last, extensions=(), sandbox="none", seconds=0.0)
        if self._verdict is not None:
            result = Fault(stage="build", verdict=self._verdict, message="it failed", candidate=self._last)
        return Evaluation(candidate=self._last, task="causal_conv", target=Target.CPU, build=result)

    @staticmethod
    def _refused(message: str) -> ToolReply:
        return ToolReply(text=message, result=Refused(message=message))


def roll_out(
    path: Path,
    model: ModelClient,
    tools: ScriptedTools,
    limits: Limits = Limits(turns=10),  # noqa: B008
    prices: Prices | None = None,
    watch: Callable[[Event], None] = lambda _: None,
    context_tokens: int | None = None,
    stopping: threading.Event | None = None,
) -> tuple[Ended, tuple[Event, ...]]:
    """Run one rollout below a path; returns its end and what is in its transcript."""
    run = RunDirectory(path)
    (path / "candidates").mkdir(parents=True, exist_ok=True)
    budget = Budget(limits, prices)
    rollout = Rollout(
        run, beginning(limits), model, tools, budget, watch, stopping=stopping, context_tokens=context_tokens
    )
    return rollout.run(), run.events("rollout-1")


def resume(
    path: Path,
    model: ScriptedModel,
    tools: ScriptedTools,
    limits: Limits = Limits(turns=10),  # noqa: B008
    prices: Prices | None = None,
    context_tokens: int | None = None,
) -> tuple[Ended, tuple[Event, ...]]:
    """Go on with the rollout below a path; returns its end and what is in its transcript."""
    run = RunDirectory(path)
    events = run.events("rollout-1")
    budget = Budget(limits, prices, before=spending_of(events))
    again = resumed(run, events, model, tools, budget, lambda _: None, context_tokens=context_tokens)
    return again.run(), run.events("rollout-1")


def beginning(limits: Limits) -> RolloutStarted:
    """What a rollout of a test starts from."""
    return RolloutStarted(
        turn=0,
        rollout="rollout-1",
        task="causal_conv",
        target=Target.CPU,
        model="scripted",
        limits=limits,
        system_prompt="You write kernels.",
        opening="Begin.",
        tools=(),
        briefing=briefing(),
    )
