"""One line of `score`: what an evaluation says about one candidate's file, flat and in fixed fields."""

from pathlib import Path

from evals.scores import Outcome
from tasks.record import Record
from tasks.spec import Precision, Target
from tools.results import Baseline, CardState, Evaluation, Interval
from tools.sanitizer_results import SanitizerRun
from tools.verdict import Verdict


class StageSeconds(Record):
    """Wall time of each stage; None where it did not run."""

    build: float
    verify: float | None
    sanitizer: float | None = None
    benchmark: float | None


class ScoreLine(Record):
    """What `score --json` writes for one file; times and speedups are None unless the candidate was measured."""

    candidate: str
    """The SHA-256 of the candidate's text."""
    file: str
    task: str
    target: Target
    precision: Precision
    verdict: Verdict
    message: str
    speedup: float | None = None
    """Over the fastest baseline."""
    speedup_interval: Interval | None = None
    baseline: str | None = None
    """The name of the fastest baseline."""
    median_ns: float | None = None
    baseline_ns: float | None = None
    floor_ns: float | None = None
    wall_median_ns: float | None = None
    prepare_ns: int | None = None
    baselines: tuple[Baseline, ...] = ()
    candidate_samples_ns: tuple[tuple[int, ...], ...] = ()
    """Raw device times, a tuple a block, in the order measured: what the figures above can be calculated from again."""
    baseline_samples_ns: tuple[tuple[int, ...], ...] = ()
    card: CardState | None = None
    disturbance: str = ""
    """What else used the machine during the measurement; empty where nothing was noticed."""
    sanitizer: tuple[SanitizerRun, ...] = ()
    """What each tool of compute-sanitizer found; empty unless it was asked for and the candidate was verified."""
    sandbox: str
    """The tier of the worker's sandbox; empty where no worker ran."""
    seconds: StageSeconds

    @property
    def outcome(self) -> Outcome:
        """What the scores need of it."""
        return Outcome(verdict=self.verdict, speedup=self.speedup)


def score_line(evaluation: Evaluation, file: Path, precision: Precision) -> ScoreLine:
    """Flatten an evaluation."""
    stages = [stage for stage in (evaluation.build, evaluation.verify, evaluation.benchmark) if stage is not None]
    timed = evaluation.timed
    return ScoreLine(
        candidate=evaluation.candidate,
        file=str(file),
        task=evaluation.task,
        target=evaluation.target,
        precision=precision,
        verdict=evaluation.verdict,
        message=evaluation.message,
        speedup=timed and timed.speedup,
        speedup_interval=timed and timed.speedup_interval,
        baseline=timed and timed.baseline,
        median_ns=timed and timed.median_ns,
        baseline_ns=timed and timed.baseline_ns,
        floor_ns=timed and timed.floor_ns,
        wall_median_ns=timed and timed.wall_median_ns,
        prepare_ns=timed and timed.prepare_ns,
        baselines=() if timed is None else timed.baselines,
        candidate_samples_ns=() if timed is None else timed.candidate_samples_ns,
        baseline_samples_ns=() if timed is None else timed.baseline_samples_ns,
        card=timed and timed.card,
        disturbance="" if timed is None else timed.disturbance,
        sanitizer=() if evaluation.sanitizer is None else evaluation.sanitizer.runs,
        sandbox=next((stage.sandbox for stage in reversed(stages) if stage.sandbox), ""),
        seconds=StageSeconds(
            build=evaluation.build.seconds,
            verify=evaluation.verify and evaluation.verify.seconds,
            sanitizer=evaluation.sanitizer and evaluation.sanitizer.seconds,
            benchmark=evaluation.benchmark and evaluation.benchmark.seconds,
        ),
    )
