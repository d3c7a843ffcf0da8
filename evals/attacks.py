"""Runs the attack suite: each candidate goes through the same judge as any other, and its verdict is compared."""

from types import TracebackType
from typing import Self

from evals.attack_files import AttackFile, Kind
from tasks.loader import find_task
from tasks.record import Record
from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import Evaluation
from tools.subject import Limits
from tools.verdict import Verdict

LIMITS = Limits(load_s=12.0, call_s=12.0, rounds_s=0.5)
"""No file needs more than some seconds a step unless it means to hang, and verdicts do not need narrow intervals."""


class AttackLine(Record):
    """What `attacks --json` writes for one file."""

    name: str
    kind: Kind
    file: str
    tries: str
    seen: str
    target: Target
    expected: tuple[Verdict, ...]
    got: Verdict
    ok: bool
    problem: str
    """What is not as expected; empty where all is."""
    message: str
    sandbox: str
    """The tier of the worker's sandbox; empty where no worker ran."""
    seconds: float


class AttackSuite:
    """One judge a task, kept as long as the files are of that task; a context manager, because it holds processes."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._judge: Judge | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process that this suite started."""
        if self._judge is not None:
            self._judge.close()
            self._judge = None

    def run(self, file: AttackFile) -> AttackLine:
        """Evaluate one file's candidate."""
        evaluation = self._judge_of(file).evaluate(Candidate(file.text))
        problem = _problem(file, evaluation)
        stages = [stage for stage in (evaluation.build, evaluation.verify, evaluation.benchmark) if stage is not None]
        return AttackLine(
            name=file.name,
            kind=file.kind,
            file=str(file.path),
            tries=file.tries,
            seen=file.seen,
            target=self._target,
            expected=file.expected,
            got=evaluation.verdict,
            ok=not problem,
            problem=problem,
            message=evaluation.message,
            sandbox=next((stage.sandbox for stage in reversed(stages) if stage.sandbox), ""),
            seconds=sum(stage.seconds for stage in stages),
        )

    def _judge_of(self, file: AttackFile) -> Judge:
        if self._judge is None or self._judge.task.path != file.task:
            self.close()
            self._judge = Judge(find_task(file.task), self._target, limits=LIMITS, fixed_candidates=True)
        return self._judge


def _problem(file: AttackFile, evaluation: Evaluation) -> str:
    if evaluation.verdict not in file.expected:
        return f"expected {' or '.join(file.expected)}, got {evaluation.verdict}: {evaluation.message}"
    timed = evaluation.timed
    if timed is None:
        return ""
    if file.least_ms is not None and timed.median_ns < file.least_ms * 1e6:
        return f"reported as {timed.median_ns / 1e6:.3g} ms a call, which takes at least {file.least_ms:g} ms"
    if file.speedup_below is not None and timed.speedup >= file.speedup_below:
        return f"reported as a speedup of {timed.speedup:.3g}, which must be below {file.speedup_below:g}"
    return ""
