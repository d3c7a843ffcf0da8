"""Scores of recorded runs, from their transcripts alone: what each rollout submitted, or that it submitted nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from evals.score_line import ScoreLine, StageSeconds, score_line
from evals.scores import FAST_P_THRESHOLDS, FastP, GeometricMean, Outcome, count_verdicts, fast_p, geometric_mean
from evals.scores import pass_at_k as estimate
from runs.events import Culprit, Ended, EndReason, Event, RolloutStarted, Submitted
from runs.find import Found
from runs.summary import end_of, started
from tasks.errors import RunFormatError
from tasks.record import Record
from tasks.spec import Precision, Target
from tools.verdict import Verdict

PASS_AT = (1, 5, 10)
_OWN_ENDS = (Culprit.MODEL, Culprit.BUDGET)
"""Who ended like this had its chance to submit, within the limits of the run."""


class Sample(Record):
    """One rollout: a sample of what a model makes of a task."""

    run: str
    rollout: str
    task: str
    target: Target
    model: str
    line: ScoreLine
    """What it submitted, as `score` writes it for a file."""


class PassAt(Record):
    """pass@k with both denominators; see `evals.scores.pass_at_k`."""

    k: int
    of_all: float
    of_judged: float | None
    """None where fewer than k were judged."""


class RecordedScores(Record):
    """The scores of the samples of one model on one task and target, or of all."""

    event: Literal["scores"] = "scores"
    task: str | None
    """None for the scores of all tasks, targets and models together."""
    target: Target | None
    model: str | None
    candidates: int
    """All samples."""
    judged: int
    """Those without a fault of the machine or the harness."""
    fast_p: tuple[FastP, ...]
    geometric_mean: GeometricMean | None
    pass_at: tuple[PassAt, ...]
    """Empty for all together, because it supposes samples of one model on one task."""
    verdicts: dict[Verdict, int]


def read_samples(found: Found) -> list[Sample]:
    """The samples of a run's rollouts.

    Raises:
        RunFormatError: a transcript cannot be read.
    """
    return [_sample(found.run.id, rollout, found.run.events(rollout)) for rollout in found.rollouts]


def scores_of(samples: Sequence[Sample]) -> list[RecordedScores]:
    """The scores of each model, task and target, then, where these are several, of all together."""
    groups: dict[tuple[str, Target, str], list[Outcome]] = {}
    for sample in samples:
        groups.setdefault((sample.task, sample.target, sample.model), []).append(sample.line.outcome)
    scores = [
        _scores(outcomes, task=task, target=target, model=model) for (task, target, model), outcomes in groups.items()
    ]
    return scores if len(scores) == 1 else [*scores, _scores([sample.line.outcome for sample in samples])]


def _scores(
    outcomes: Sequence[Outcome], *, task: str | None = None, target: Target | None = None, model: str | None = None
) -> RecordedScores:
    return RecordedScores(
        task=task,
        target=target,
        model=model,
        candidates=len(outcomes),
        judged=sum(outcome.judged for outcome in outcomes),
        fast_p=tuple(fast_p(outcomes, p) for p in FAST_P_THRESHOLDS),
        geometric_mean=geometric_mean(outcomes),
        pass_at=() if task is None else _pass_at(outcomes),
        verdicts=count_verdicts(outcomes),
    )


def _pass_at(outcomes: Sequence[Outcome]) -> tuple[PassAt, ...]:
    correct = sum(outcome.verdict is Verdict.CORRECT for outcome in outcomes)
    judged = sum(outcome.judged for outcome in outcomes)
    return tuple(
        PassAt(
            k=k,
            of_all=estimate(len(outcomes), correct, k),
            of_judged=estimate(judged, correct, k) if k <= judged else None,
        )
        for k in PASS_AT
        if k <= len(outcomes)
    )


def _sample(run: str, rollout: str, events: Sequence[Event]) -> Sample:
    first = started(events)
    target, precision = _asked(first)
    submitted = next((event for event in reversed(events) if isinstance(event, Submitted)), None)
    name = f"{run} {rollout}"
    if submitted is None:
        line = _without_submission(first, name, end_of(events), target, precision)
    else:
        line = score_line(submitted.evaluation, Path(name), precision)
    return Sample(run=run, rollout=rollout, task=first.task, target=target, model=first.model, line=line)


def _asked(first: RolloutStarted) -> tuple[Target, Precision]:
    """Where candidates were to run, and how exactly."""
    if first.target is None or first.briefing is None:
        raise RunFormatError(
            f"The transcript of {first.rollout} does not say where its candidates ran: it was imported. Evaluate them "
            "here: kernelwright score TASK RUN/candidates"
        )
    return first.target, first.briefing.precision


def _without_submission(
    first: RolloutStarted, name: str, ended: Ended | None, target: Target, precision: Precision
) -> ScoreLine:
    """A model that ends without a candidate has none that is right; it stays in the denominators like a wrong one."""
    # Nobody knows what a rollout would have come to that was killed, still goes on, or had no server or machine.
    verdict = Verdict.UNAVAILABLE
    if ended is not None and ended.culprit is Culprit.HARNESS:
        verdict = Verdict.HARNESS_ERROR
    elif ended is not None and ended.culprit in _OWN_ENDS and ended.reason is not EndReason.QUOTA_EXHAUSTED:
        verdict = Verdict.NO_RESULT
    how = "no end was recorded" if ended is None else f"the rollout ended with {ended.reason}: {ended.message}"
    return ScoreLine(
        candidate="",
        file=name,
        task=first.task,
        target=target,
        precision=precision,
        verdict=verdict,
        message=f"nothing was submitted; {how}",
        sandbox="",
        seconds=StageSeconds(build=0.0, verify=None, benchmark=None),
    )
