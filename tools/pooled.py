"""An evaluator that asks a pool: several rollouts have their candidates built at once, and measured one at a time."""

from typing import cast

from tasks.errors import HarnessError
from tasks.spec import Target
from tools.briefing import Briefing
from tools.candidate import Candidate
from tools.jobs import Job, JobTask, Question
from tools.pool import Pool
from tools.results import (
    BenchmarkResult,
    BuildResult,
    DisassemblyResult,
    Evaluation,
    Fault,
    ProfileResult,
    SanitizeResult,
    ToolResult,
    VerifyResult,
)


class PooledEvaluator:
    """Answers for one task on one target, as `tools.evaluator.Evaluator`; each rollout has one of its own.

    All methods raise StoppedError where the pool is closed meanwhile, and HarnessError where all its machines are lost.
    """

    def __init__(self, pool: Pool, task: JobTask, target: Target) -> None:
        self._pool = pool
        self._task = task
        self._target = target
        self._leased_s = 0.0

    @property
    def leased_s(self) -> float:
        """How long the device was held for this evaluator, all questions together."""
        return self._leased_s

    def briefing(self) -> Briefing:
        """What a model is told before it starts; a lane measures the baselines."""
        result = self._pool.ask(Job(task=self._task, target=self._target, text="", question="briefing")).result
        if isinstance(result, Briefing):
            return result
        raise HarnessError(f"no model can be briefed: {result.message if isinstance(result, Fault) else result}")

    def compile(self, candidate: Candidate) -> BuildResult:
        """As of `Evaluator`."""
        return cast(BuildResult, self._asked(candidate, "compile"))

    def verify(self, candidate: Candidate) -> VerifyResult:
        """As of `Evaluator`."""
        return cast(VerifyResult, self._asked(candidate, "verify"))

    def benchmark(self, candidate: Candidate) -> BenchmarkResult:
        """As of `Evaluator`."""
        return cast(BenchmarkResult, self._asked(candidate, "benchmark"))

    def evaluate(self, candidate: Candidate, *, strict: bool = False) -> Evaluation:
        """As of `Evaluator`."""
        return cast(Evaluation, self._asked(candidate, "evaluate", strict=strict))

    def profile(self, candidate: Candidate) -> ProfileResult:
        """As of `Evaluator`."""
        return cast(ProfileResult, self._asked(candidate, "profile"))

    def sanitize(self, candidate: Candidate) -> SanitizeResult:
        """As of `Evaluator`."""
        return cast(SanitizeResult, self._asked(candidate, "sanitize"))

    def disassemble(self, candidate: Candidate, function: str | None = None) -> DisassemblyResult:
        """As of `Evaluator`."""
        return cast(DisassemblyResult, self._asked(candidate, "disassemble", function=function))

    def _asked(
        self, candidate: Candidate, question: Question, *, strict: bool = False, function: str | None = None
    ) -> ToolResult:
        answered = self._pool.ask(
            Job(
                task=self._task,
                target=self._target,
                text=candidate.text,
                strict=strict,
                question=question,
                function=function,
            )
        )
        self._leased_s += answered.device_seconds
        assert not isinstance(answered.result, Briefing)
        return answered.result
