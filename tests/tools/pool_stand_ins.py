"""A judge for tests of the pool's processes: it does what a candidate's text says, and needs no PyTorch."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tasks.loader import Task, find_task
from tasks.record import Record
from tasks.spec import Precision, Target
from tools.candidate import Candidate
from tools.jobs import Job, JobTask
from tools.lease import lease
from tools.results import BuildResult, Built, Evaluation, Fault, Verified
from tools.verdict import Verdict

JUDGE = "pool_stand_ins:StandInJudge"


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


class Script(Record):
    """A candidate's text: orders for both stages."""

    name: str
    build: Orders = Orders()
    evaluate: Orders = Orders()

    def job(self, task: str = "causal_conv") -> Job:
        """A job with this script as its candidate."""
        return Job(task=JobTask.of(find_task(task)), target=Target.CPU, text=self.model_dump_json())


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
        assert not allow_library and not fixed_candidates

    def get_ready(self) -> None:
        """Nothing is needed."""

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
        verdict = _carry_out(Script.model_validate(json.loads(candidate.text)).evaluate, self._progress)
        seconds = time.monotonic() - started
        verify: Verified | Fault
        if verdict is Verdict.CORRECT:
            verify = Verified(
                candidate=candidate.id, precision=Precision.FP32, checks=(), sandbox=self._sandbox, seconds=seconds
            )
        else:
            verify = Fault(stage="verify", verdict=verdict, message="as ordered", candidate=candidate.id)
        return Evaluation(candidate=candidate.id, task=self._task.name, target=self._target, build=build, verify=verify)

    def close(self) -> None:
        """There is nothing to end."""
