"""What `show` prints: one run from its record, or the list of all."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer

from runs.find import Found, find_run
from runs.listing import RolloutLine, RunLine, holds_runs, list_all
from runs.places import LOCAL, RECORDED
from runs.render import render_rollout
from runs.summary import summarize
from runs.terminal import make_console, printable
from tasks.record import Record

_COLUMNS = ("created (UTC)", "run", "target", "model", "rollouts", "how they ended")


def show_run(asked: str, as_json: bool) -> None:
    """Print the run that is meant; the list of all where a folder of runs is."""
    if holds_runs(Path(asked)):
        show_runs((Path(asked),), as_json)
        return
    found = find_run(asked)
    if as_json:
        _show_json(found)
        return
    console = make_console()
    config = found.run.config()
    for rollout in found.rollouts:
        render_rollout(console, config, found.run.events(rollout))


def show_runs(roots: Sequence[Path] = (LOCAL, RECORDED), as_json: bool = False) -> None:
    """Print which runs there are, newest first."""
    lines = list_all(roots)
    if as_json:
        for line in lines:
            typer.echo(line.model_dump_json())
        return
    if not lines:
        typer.echo(f"There is no run in {' or '.join(map(str, roots))}; `kernelwright run TASK` makes one.")
        return
    # Rich takes half a minute for the table of 10,000 runs.
    rows = [_COLUMNS, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    text = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    typer.echo("\n".join(line.rstrip() for line in text.split("\n")))


def print_json(event: str, record: Record, **more: str | bool) -> None:
    """One JSON object on one line; what is not an event of the transcript is told apart by its own `event`."""
    typer.echo(json.dumps({"event": event, **more, **json.loads(record.model_dump_json())}))


def _show_json(found: Found) -> None:
    print_json("run", found.run.config())
    for rollout in found.rollouts:
        events = found.run.events(rollout)
        for event in events:
            typer.echo(event.model_dump_json())
        print_json("summary", summarize(events))


def _cells(line: RunLine) -> tuple[str, ...]:
    begun = len(line.rollouts)
    count = str(begun) if line.planned in (None, begun) else f"{begun} of {line.planned}"
    ends = [line.problem] if line.problem else []
    ends += ["no rollout began"] if not begun else _ends(line.rollouts)
    cells = (f"{line.created:%Y-%m-%d %H:%M}", line.run, line.target or "?", line.model or "?", count, "; ".join(ends))
    # A table's row is one line, whatever a server or a file said.
    return tuple(printable(" ".join(cell.split())) for cell in cells)


def _ends(rollouts: Sequence[RolloutLine]) -> list[str]:
    """How rollouts ended, each way once."""
    if len(rollouts) == 1:
        return [_end(rollouts[0], whole=True)]
    counts = Counter(_end(rollout, whole=False) for rollout in rollouts)
    return [f"{count} {end}" for end, count in counts.items()]


def _end(rollout: RolloutLine, *, whole: bool) -> str:
    if rollout.problem:
        return rollout.problem
    if rollout.reason is None:
        return "no end was recorded"
    message = rollout.message if whole else rollout.message.partition(",")[0]
    return f"{rollout.reason}: {message}" if message else rollout.reason
