"""A judge for tests of the pool's processes: it does what a candidate's text says, and needs no PyTorch."""

import json
import os
import signal
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tasks.loader import Task, find_task
from tasks.record import Record
from tasks.spec import Precision, Target
from tools.briefing import Briefing, Machine
from tools.candidate import Candidate
from tools.disassembly_results import Disassembled
from tools.jobs import Job, JobTask
from tools.lease import lease
from tools.profile_results import Profiled
from tools.results import (
    BenchmarkResult,
    BuildResult,
    Built,
    DisassemblyResult,
    Evaluation,
    Fault,
    Interval,
    ProfileResult,
    SanitizeResult,
    Stage,
    Timed,
    Verified,
    VerifyResult,
)
from tools.sanitizer_results import Sanitized
from tools.verdict import Verdict

JUDGE = "pool_stand_ins:StandInJudge"
UNREADY_JUDGE = "pool_stand_ins:UnreadyJudge"


class Orders(Record):
    """What a stage does."""

    sleep_s: float = 0.0
    dies: bool = False
    """By a signal that cannot be caught."""
    dies_once: str = ""
    """The same, unless there is this file, which is made before."""
    verdict: Verdict = Verdict.CORRECT
    device: str = ""
    """A lease to hold meanwhile."""
    touch: str = ""
    """A file to make when the stage starts."""


@lru_cache
def _task_of(name: str) -> JobTask:
    """Read once: some tests make hundreds of jobs of a task."""
    return JobTask.of(find_task(name))


class Script(Record):
    """A candidate's text: orders for both stages."""

    name: str
    build: Orders = Orders()
    evaluate: Orders = Orders()

    def job(self, task: str = "causal_conv") -> Job:
        """A job with this script as its candidate."""
        return Job(task=_task_of(task), target=Target.CPU, text=self.model_dump_json())


BRIEFING = Briefing(
    task="causal_conv",
    title="As told by a stand-in",
    mode="eval",
    target=Target.CPU,
    precision=Precision.FP32,
    source="class Model: ...",
    sizes={"N": 1},
    input_shapes={"x": (1,)},
    parameters={},
    notes="",
    machine=Machine(
        device="None", cores=1, cache_bytes=0, peak_bytes_per_s=None, peak_flops_per_s=None, torch="", python=""
    ),
    flop_count=1,
    byte_count=1,
    floor_ns=None,
    baselines=(),
)
"""What a model is told before it starts."""
DIES_GETTING_READY = "STAND_IN_DIES_GETTING_READY"
"""An environment variable: the file to add a line to before getting ready ends the process."""
NO_BRIEFING = "STAND_IN_WITHOUT_BRIEFING"
"""An environment variable: where it is set, briefing ends the process."""


def _carry_out(orders: Orders, progress: Callable[[str], None]) -> Verdict:
    if orders.touch:
        Path(orders.touch).touch()
    if orders.device:
        with lease(orders.device, progress):
            time.sleep(orders.sleep_s)
    else:
        time.sleep(orders.sleep_s)
    once = Path(orders.dies_once)
    if orders.dies or (orders.dies_once and not once.exists()):
        if orders.dies_once:
            once.touch()
        print("about to die", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return orders.verdict


class StandInJudge:
    """Has the methods of `tools.judge.Judge` that a process of the pool uses; tells its own number as the sandbox."""

    made = 0

    def __init__(
        self,
        task: Task,
        target: Target,
        *,
        allow_library: bool,
        fixed_candidates: bool,
        processes: None,
        progress: Callable[[str], None],
    ) -> None:
        StandInJudge.made += 1
        self._sandbox = f"judge {StandInJudge.made} of {task.name}, process {os.getpid()}"
        self._task = task
        self._target = target
        self._progress = progress
        self.idle_neighbours = 0
        self.warm_workers = 0
        self.server_pid = None
        self.leased_s = 0.0
        assert not allow_library and not fixed_candidates and processes is None

    def get_ready(self) -> None:
        """Nothing is needed, unless it is to end the process."""
        if DIES_GETTING_READY in os.environ:
            with Path(os.environ[DIES_GETTING_READY]).open("a") as file:
                file.write(f"{self._task.name}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def compile(self, candidate: Candidate) -> BuildResult:
        """Carry out the orders for building."""
        verdict = _carry_out(Script.model_validate(json.loads(candidate.text)).build, self._progress)
        if verdict is not Verdict.CORRECT:
            return Fault(stage="build", verdict=verdict, message="as ordered", candidate=candidate.id)
        return Built(candidate=candidate.id, extensions=(), sandbox=self._sandbox, seconds=0.0)

    def evaluate(self, candidate: Candidate, *, strict: bool, build: BuildResult | None) -> Evaluation:
        """Carry out the orders for evaluating."""
        assert not strict
        assert build is not None
        started = time.monotonic()
        orders = Script.model_validate(json.loads(candidate.text)).evaluate
        verdict = _carry_out(orders, self._progress)
        seconds = time.monotonic() - started
        self.leased_s += seconds if orders.device else 0.0
        verify: Verified | Fault
        if verdict is Verdict.CORRECT:
            verify = Verified(
                candidate=candidate.id, precision=Precision.FP32, checks=(), sandbox=self._sandbox, seconds=seconds
            )
        else:
            verify = Fault(stage="verify", verdict=verdict, message="as ordered", candidate=candidate.id)
        return Evaluation(candidate=candidate.id, task=self._task.name, target=self._target, build=build, verify=verify)

    def briefing(self) -> Briefing:
        """Always the same."""
        assert NO_BRIEFING not in os.environ
        return BRIEFING

    def verify(self, candidate: Candidate) -> VerifyResult:
        """Carry out the orders for evaluating."""
        return self._ordered(candidate, "verify") or Verified(
            candidate=candidate.id, precision=Precision.FP32, checks=(), sandbox=self._sandbox, seconds=0.0
        )

    def benchmark(self, candidate: Candidate) -> BenchmarkResult:
        """Carry out the orders for evaluating."""
        return self._ordered(candidate, "benchmark") or Timed(
            candidate=candidate.id,
            median_ns=1.0,
            baseline="eager",
            baseline_ns=1.0,
            speedup=1.0,
            speedup_interval=Interval(low=1.0, high=1.0),
            baselines=(),
            floor_ns=None,
            prepare_ns=0,
            wall_median_ns=1.0,
            candidate_samples_ns=(),
            baseline_samples_ns=(),
            sandbox=self._sandbox,
            seconds=0.0,
        )

    def profile(self, candidate: Candidate) -> ProfileResult:
        """Carry out the orders for evaluating."""
        return self._ordered(candidate, "profile") or Profiled(
            candidate=candidate.id,
            shape="N=1",
            calls=1,
            call_ns=1.0,
            byte_count=1,
            flop_count=1,
            peak_bytes_per_s=None,
            peak_flops_per_s=None,
            floor_ns=None,
        )

    def sanitize(self, candidate: Candidate) -> SanitizeResult:
        """Carry out the orders for evaluating."""
        return self._ordered(candidate, "sanitizer") or Sanitized(candidate=candidate.id, runs=(), seconds=0.0)

    def disassemble(self, candidate: Candidate, function: str | None) -> DisassemblyResult:
        """Tells which function it was asked for; a builder does it."""
        return Disassembled(candidate=candidate.id, function=function or "")

    def _ordered(self, candidate: Candidate, stage: Stage) -> Fault | None:
        began = time.monotonic()
        orders = Script.model_validate(json.loads(candidate.text)).evaluate
        verdict = _carry_out(orders, self._progress)
        self.leased_s += time.monotonic() - began if orders.device else 0.0
        if verdict is Verdict.CORRECT:
            return None
        return Fault(stage=stage, verdict=verdict, message="as ordered", candidate=candidate.id)

    def close(self) -> None:
        """There is nothing to end."""


class UnreadyJudge(StandInJudge):
    """One that fails while it gets ready, as PyTorch does where a GPU has no memory left."""

    def get_ready(self) -> None:
        """Nobody's candidate is to blame."""
        raise RuntimeError("CUDA error: out of memory")
