"""Whether a task may be trusted: mutants of its reference must fail on it, and honest computations must pass.

What is NOT covered: a fault that no mutant here has. The mutants show that the gate sees the usual mistakes on this
task's shapes, inputs and precision class, and by what margin.
"""

import time
from collections.abc import Callable
from typing import Self

from pydantic import model_validator

from tasks.errors import HarnessError, UnavailableError
from tasks.loader import Task
from tasks.record import Record
from tasks.spec import Precision, Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.mutants import Variant, honest, mutants
from tools.results import Fault, VerifyResult
from tools.verdict import Verdict


class MutantTried(Record):
    """A wrong variant of the reference, and what the judge said of it."""

    name: str
    does: str
    verdict: Verdict
    excess: float | None
    """The largest error over its limit at the first check that failed; None where the fault is no matter of size."""
    message: str

    @property
    def as_it_must(self) -> bool:
        """Whether the judge saw that it is wrong."""
        return self.verdict is Verdict.INCORRECT


class HonestTried(Record):
    """A right variant of the reference, and what the judge said of it."""

    name: str
    does: str
    verdict: Verdict
    used: float | None
    """The largest error over its limit among all checks, 1 being the edge; None where it failed."""
    message: str

    @property
    def as_it_must(self) -> bool:
        """Whether the judge accepted it."""
        return self.verdict is Verdict.CORRECT


class NotTried(Record):
    """A mutant that would prove nothing on this task."""

    name: str
    reason: str


class Admission(Record):
    """What became of a task's mutants and of its honest variants."""

    task: str
    target: Target
    precision: Precision
    mutants: tuple[MutantTried, ...]
    honest: tuple[HonestTried, ...]
    not_tried: tuple[NotTried, ...]
    admitted: bool
    """Whether all mutants failed and all honest variants passed."""
    seconds: float

    @model_validator(mode="after")
    def _admitted_for_a_reason(self) -> Self:
        if self.admitted != _all_as_they_must(self.mutants, self.honest):
            raise ValueError("admitted must say whether every mutant and every honest variant got what it must")
        return self


def _all_as_they_must(mutants: tuple[MutantTried, ...], honest: tuple[HonestTried, ...]) -> bool:
    return all(mutant.as_it_must for mutant in mutants) and all(variant.as_it_must for variant in honest)


def admit(task: Task, target: Target, progress: Callable[[str], None]) -> Admission:
    """Try every mutant and every honest variant of a task.

    Raises:
        UnavailableError: the target cannot run here.
        HarnessError: the judge failed, or the reference does on a shape that the task's facts call valid.
    """
    started = time.monotonic()
    with Judge(task, target, allow_library=True, progress=progress) as judge:
        right = tuple(_try_honest(judge, variant, progress) for variant in honest(task, target))
        made, omitted = mutants(task, target)
        wrong = tuple(_try_mutant(judge, variant, progress) for variant in made)
    return Admission(
        task=task.name,
        target=target,
        precision=task.facts.precision_on(target),
        mutants=wrong,
        honest=right,
        admitted=_all_as_they_must(wrong, right),
        not_tried=tuple(NotTried(name=name, reason=reason) for name, reason in omitted),
        seconds=time.monotonic() - started,
    )


def _try_mutant(judge: Judge, variant: Variant, progress: Callable[[str], None]) -> MutantTried:
    result = _verify(judge, variant, progress)
    fault = result if isinstance(result, Fault) else None
    return MutantTried(
        name=variant.name,
        does=variant.does,
        verdict=Verdict.CORRECT if fault is None else fault.verdict,
        excess=None if fault is None else fault.excess,
        message="" if fault is None else fault.message,
    )


def _try_honest(judge: Judge, variant: Variant, progress: Callable[[str], None]) -> HonestTried:
    result = _verify(judge, variant, progress)
    if isinstance(result, Fault):
        return HonestTried(
            name=variant.name, does=variant.does, verdict=result.verdict, used=None, message=result.message
        )
    used = max((check.used for check in result.checks), default=0.0)
    return HonestTried(name=variant.name, does=variant.does, verdict=Verdict.CORRECT, used=used, message="")


def _verify(judge: Judge, variant: Variant, progress: Callable[[str], None]) -> VerifyResult:
    progress(f"{judge.task.name}: {variant.name}")
    result = judge.verify(Candidate(variant.text))
    if isinstance(result, Fault) and result.verdict is Verdict.UNAVAILABLE:
        raise UnavailableError(result.message)
    if isinstance(result, Fault) and result.verdict is Verdict.HARNESS_ERROR:
        raise HarnessError(f"{variant.name} of task {judge.task.name} could not be tried: {result.message}")
    return result
