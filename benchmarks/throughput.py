"""How many candidates are evaluated in an hour: the pool beside what people do today, from cold caches.

    python benchmarks/throughput.py run OUT [--target cuda|cpu] [--count 64] [--lanes N] [--arm today|pool|ray] ...
    python benchmarks/throughput.py plot OUT

`run` writes a trace an arm into the folder OUT, with the start and end of every build, verification and benchmark and
who did it, and prints the rates; `plot` draws the traces that are there, for which it needs matplotlib (the extra
`bench`). Arms are measured one after the other, from the start of their first process to their last result; a Ray
cluster stands before that. With traces of several numbers of lanes, their times of the same candidates are compared.
"""

import contextlib
import itertools
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field
from throughput_candidates import Variant, variants

from tasks.loader import find_task
from tasks.record import Record
from tasks.spec import Target
from tools.jobs import Job, JobTask, Span

if TYPE_CHECKING:
    from tools.pool_queue import Site

app = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)


class Arm(StrEnum):
    """What is compared."""

    TODAY = "today"
    """Plain `load_inline` in a pool of processes, then a fresh process for each evaluation; `throughput_today.py`."""
    POOL = "pool"
    """`tools.pool`, with all its checks."""
    RAY = "ray"
    """The same pool on a Ray cluster of this machine alone, with a lane for each GPU."""


class Trace(Record):
    """What one arm did."""

    schema_version: int = 1
    arm: Arm
    target: Target
    lanes: int
    cores: int
    python: str
    torch: str
    seconds: float
    """From the start of the first process to the last result."""
    outcomes: tuple[str, ...]
    """A verdict for each candidate; of the arm `today` `correct`, `incorrect` or a message."""
    medians_ns: dict[str, float] = Field(default_factory=dict)
    """The measured time of each candidate by its name, where the arm tells."""
    started_s: float
    """Seconds since 1970."""
    spans: tuple[Span, ...]

    @property
    def per_hour(self) -> float:
        """Candidates an hour."""
        return 3600 * len(self.outcomes) / self.seconds


@app.command()
def run(
    out: Annotated[Path, typer.Argument(help="The folder for the traces.")],
    target: Annotated[Target, typer.Option()] = Target.CUDA,
    count: Annotated[int, typer.Option(min=1, help="How many candidates.")] = 64,
    lanes: Annotated[int | None, typer.Option(min=1, help="Of the pool; by default one for each GPU.")] = None,
    arm: Annotated[list[Arm] | None, typer.Option(help="Which arms; by default `today` and `pool`.")] = None,
) -> None:
    """Evaluate the same candidates in each arm, and print the rates."""
    out.mkdir(parents=True, exist_ok=True)
    candidates = variants(target, count)
    for each in arm or [Arm.TODAY, Arm.POOL]:
        trace = _today(candidates, target) if each is Arm.TODAY else _pool(each, candidates, target, lanes)
        name = each if lanes is None or each is not Arm.POOL else f"{each}-{lanes}"
        (out / f"{name}.json").write_text(trace.model_dump_json(indent=1), encoding="utf-8")
    _report(_traces(out))


def _today(candidates: Sequence[Variant], target: Target) -> Trace:
    from throughput_today import evaluate_today

    started_s = time.time()
    outcomes, spans = [], []
    with tempfile.TemporaryDirectory(prefix="throughput-") as folder:
        for outcome, taken in evaluate_today(candidates, target, Path(folder)):
            outcomes.append(outcome)
            spans += taken
            _say(Arm.TODAY, len(outcomes), len(candidates), started_s, outcome)
        seconds = time.time() - started_s
    return _trace(Arm.TODAY, target, 1, started_s, seconds, outcomes, spans)


@contextlib.contextmanager
def _site(arm: Arm, target: Target, lanes: int | None) -> "Iterator[Site]":
    """This machine, as a site of its own or as the only node of a cluster."""
    if arm is Arm.POOL:
        from tools.local_site import local_site

        yield local_site(target, lambda message: print(message, file=sys.stderr), lanes=lanes)
        return
    import ray

    from tools.ray_sites import ray_sites

    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    try:
        (site,) = ray_sites("local", target)
        yield site
    finally:
        ray.shutdown()


def _pool(arm: Arm, candidates: Sequence[Variant], target: Target, lanes: int | None) -> Trace:
    from tools.pool import Pool

    tasks = {name: JobTask.of(find_task(name)) for name in {each.task for each in candidates}}
    jobs = {
        Job(task=tasks[each.task], target=target, text=each.text, fixed_candidates=True): each.name
        for each in candidates
    }
    names = {job.id: name for job, name in jobs.items()}
    outcomes: list[str] = []
    spans: list[Span] = []
    medians: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="throughput-") as folder:
        os.environ["KERNELWRIGHT_CACHE"] = folder
        with _site(arm, target, lanes) as site:
            started_s = time.time()
            with Pool([site]) as pool:
                for found in pool.evaluate(jobs):
                    outcomes.append(str(found.evaluation.verdict))
                    spans += found.spans
                    if found.evaluation.timed is not None:
                        medians[names[found.job]] = found.evaluation.timed.median_ns
                    _say(arm, len(outcomes), len(jobs), started_s, found.evaluation.message)
                seconds = time.time() - started_s
    return _trace(arm, target, len(site.lanes), started_s, seconds, outcomes, spans, medians)


def _say(arm: Arm, done: int, count: int, started_s: float, outcome: str) -> None:
    print(f"{arm} [{done}/{count}] {time.time() - started_s:.1f} s: {outcome}", file=sys.stderr, flush=True)


def _trace(
    arm: Arm,
    target: Target,
    lanes: int,
    started_s: float,
    seconds: float,
    outcomes: list[str],
    spans: list[Span],
    medians: dict[str, float] | None = None,
) -> Trace:
    import torch

    return Trace(
        arm=arm,
        target=target,
        lanes=lanes,
        cores=len(os.sched_getaffinity(0)),
        python=platform.python_version(),
        torch=torch.__version__,
        seconds=seconds,
        outcomes=tuple(outcomes),
        medians_ns=medians or {},
        started_s=started_s,
        spans=tuple(spans),
    )


def _traces(folder: Path) -> dict[str, Trace]:
    """The traces of a folder by the names of their files, the slowest first."""
    found = {file.stem: Trace.model_validate_json(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")}
    return dict(sorted(found.items(), key=lambda item: item[1].per_hour))


def _report(traces: dict[str, Trace]) -> None:
    slowest = next(iter(traces.values()))
    for name, trace in traces.items():
        verdicts = ", ".join(f"{count} {outcome}" for outcome, count in Counter(trace.outcomes).most_common())
        print(
            f"{name}: {len(trace.outcomes)} candidates in {trace.seconds:.1f} s, {trace.per_hour:.0f} an hour "
            f"({trace.per_hour / slowest.per_hour:.2f} x), {trace.lanes} lanes, {trace.cores} cores, "
            f"PyTorch {trace.torch}, Python {trace.python}: {verdicts}"
        )
        for stage, spans in itertools.groupby(sorted(trace.spans, key=_stage), key=_stage):
            seconds = sorted(span.ended_s - span.started_s for span in spans)
            print(f"    {stage}: {len(seconds)}, median {seconds[len(seconds) // 2]:.2f} s, sum {sum(seconds):.1f} s")
        evaluated = [span.ended_s for span in trace.spans if span.stage == "benchmark"]
        if len(evaluated) > 1:
            # Caches are cold and nothing is built at first, whatever the number of lanes.
            first_s, last_s = min(evaluated), max(evaluated)
            rate = 3600 * (len(evaluated) - 1) / (last_s - first_s)
            print(f"    first figures after {first_s - trace.started_s:.1f} s, from then on {rate:.0f} an hour")
    for (name, trace), (other, compared) in itertools.combinations(traces.items(), 2):
        _compare(name, trace.medians_ns, other, compared.medians_ns)


def _compare(name: str, ours: dict[str, float], other: str, theirs: dict[str, float]) -> None:
    """By how much the times of the same candidates differ."""
    apart = sorted(abs(ours[each] / theirs[each] - 1.0) for each in ours.keys() & theirs.keys())
    if apart:
        within = sum(each <= 0.01 for each in apart)
        middle = apart[len(apart) // 2]
        print(
            f"{name} and {other}: times of {len(apart)} candidates, {within} within 1 % of each other; "
            f"median {middle:.2%}, largest {apart[-1]:.2%}"
        )


def _stage(span: Span) -> str:
    return span.stage


@app.command()
def plot(folder: Annotated[Path, typer.Argument(help="The folder that `run` has filled.")]) -> None:
    """Draw the traces of a folder into `throughput.png` there: a row for each builder and lane."""
    from throughput_plot import draw

    traces = _traces(folder)
    _report(traces)
    draw({name: (trace.started_s, trace.seconds, trace.spans) for name, trace in traces.items()}, folder)


if __name__ == "__main__":
    # As the command line has it; it must be set before PyTorch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    app()
