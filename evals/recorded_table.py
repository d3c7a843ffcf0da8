"""What `scores` prints: the rollouts, then the scores of each model on each task, with both denominators."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evals.recorded_scores import PASS_AT, RecordedScores, Sample, read_samples, scores_of
from evals.score_table import format_speedup
from evals.scores import FAST_P_THRESHOLDS
from runs.find import Found, find_run
from runs.listing import holds_runs, list_all
from runs.terminal import duration, make_console, printable
from tasks.errors import RunFormatError, UsageError
from tools.verdict import Verdict


def report_scores(asked: Sequence[str], as_json: bool) -> None:
    """Print the scores of runs; ends the program with 1 where one of them cannot be read.

    Raises:
        UsageError: a run does not exist, or none holds a rollout.
    """
    samples: list[Sample] = []
    unread = 0
    for found in _found(asked):
        try:
            if found.run.config().imported_from is not None:
                print(_imported(found), file=sys.stderr)
                continue
            samples += read_samples(found)
        except RunFormatError as error:
            unread += 1
            print(f"kernelwright: not scored: {error}", file=sys.stderr)
    if not samples:
        raise UsageError(
            f"no rollout of {', '.join(asked)} can be scored; `kernelwright show` lists the runs there are."
        )
    scores = scores_of(samples)
    if as_json:
        for sample in samples:
            typer.echo(json.dumps({"event": "sample", **json.loads(sample.model_dump_json())}))
        for score in scores:
            typer.echo(score.model_dump_json())
    else:
        _print(make_console(), samples, scores)
    if unread:
        raise typer.Exit(1)


def _imported(found: Found) -> str:
    """Why an imported run has no score: what its kernels are worth shows when they are evaluated here."""
    run = found.run
    return (
        f"kernelwright: not scored: the run {run.id} was imported, and nothing in it was judged here. Evaluate its "
        f"candidates: kernelwright score TASK {run.candidates}"
    )


def _found(asked: Sequence[str]) -> Iterator[Found]:
    """Every run once, whichever ways it was named."""
    seen: set[tuple[Path, tuple[str, ...]]] = set()
    for name in asked:
        inner = [line.path for line in list_all([Path(name)]) if line.rollouts] if holds_runs(Path(name)) else [name]
        for one in inner:
            found = find_run(one)
            key = (found.run.path.resolve(), found.rollouts)
            if key not in seen:
                seen.add(key)
                yield found


def _print(console: Console, samples: Sequence[Sample], scores: Sequence[RecordedScores]) -> None:
    table = Table("run", "rollout", "task", "verdict")
    for name in ("time", "speedup [99 %]"):
        table.add_column(name, justify="right")
    for sample in samples:
        line = sample.line
        table.add_row(
            Text(printable(sample.run)),
            Text(printable(sample.rollout)),
            Text(printable(sample.task)),
            Text(line.verdict, style="green" if line.verdict is Verdict.CORRECT else "red"),
            duration(line.median_ns),
            format_speedup(line.speedup, line.speedup_interval),
        )
    console.print(table)
    for sample in samples:
        if sample.line.verdict is not Verdict.CORRECT:
            console.print(Text(printable(f"{sample.run} {sample.rollout}: {sample.line.message}")), soft_wrap=True)
    console.print(_scores(scores))


def _scores(scores: Sequence[RecordedScores]) -> Table:
    table = Table(
        "of",
        "rollouts",
        caption="judged: without the faults of machine, server and harness; a rollout that submitted nothing "
        "counts as wrong",
    )
    shown_at = [k for k in PASS_AT if any(k == item.k for score in scores for item in score.pass_at)]
    names = [*(f"fast_{p:g}" for p in FAST_P_THRESHOLDS), *(f"pass@{k}" for k in shown_at), "geometric mean [95 %]"]
    for name in names:
        table.add_column(name, justify="right")
    for score in scores:
        whose = "all together" if score.task is None else f"{score.task} on {score.target}, {score.model}"
        estimates = {item.k: item for item in score.pass_at}
        mean = score.geometric_mean
        table.add_row(
            Text(printable(whose)),
            f"all {score.candidates}",
            *(f"{item.of_all:.3f} ({item.fast})" for item in score.fast_p),
            *(f"{estimates[k].of_all:.3f}" if k in estimates else "-" for k in shown_at),
            "-" if mean is None else format_speedup(mean.value, mean.interval),
        )
        judged = [estimates[k].of_judged if k in estimates else None for k in shown_at]
        table.add_row(
            "",
            f"{score.judged} judged",
            *(f"{item.of_judged:.3f} ({item.fast})" if score.judged else "-" for item in score.fast_p),
            *("-" if value is None else f"{value:.3f}" for value in judged),
            "" if mean is None else f"over {mean.count} correct",
        )
        table.add_section()
    return table
