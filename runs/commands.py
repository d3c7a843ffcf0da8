"""The commands that read runs: `show` and `replay`."""

import json
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runs.find import Found, find_run
from runs.render import render_rollout
from runs.replay import Replayed, replay_calls
from runs.summary import started, summarize
from runs.terminal import duration, make_console, printable, short, speedup, verdict
from tasks.loader import find_task
from tasks.record import Record
from tasks.spec import Target
from tools.required_sandbox import RequireSandboxOption, require_sandbox

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's path, or its id, or a beginning of the id that fits one run only.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON object a line on standard output, only that.")]


def register(app: typer.Typer) -> None:
    """Add this floor's commands."""
    app.command()(show)
    app.command()(replay)


def show(run: RunArgument, as_json: JsonOption = False) -> None:
    """Print a recorded run: reasoning, calls, code, results, and the table of turns. Needs nothing but the record."""
    found = find_run(run)
    if as_json:
        _show_json(found)
        return
    console = make_console()
    config = found.run.config()
    for rollout in found.rollouts:
        render_rollout(console, config, found.run.events(rollout))


def replay(
    run: RunArgument,
    target: Annotated[
        Target | None, typer.Option(help="Where to carry the calls out; the recorded target by default.")
    ] = None,
    as_json: JsonOption = False,
    require: RequireSandboxOption = None,
) -> None:
    """Carry a recorded run's tool calls out again here, beside the recorded results. Exits 1 if a verdict differs."""
    found = find_run(run)
    config = found.run.config()
    task = find_task(config.task_argument)
    require_sandbox(require, target or config.target)
    # Judging needs PyTorch; a wrong name is to be reported without waiting for its import.
    from tools.judge import Judge
    from tools.toolbox import Toolbox

    console = make_console()

    def tell(what: str) -> None:
        if not as_json:
            console.print(Text(printable(what)), soft_wrap=True)

    agreed = True
    for rollout in found.rollouts:
        events = found.run.events(rollout)
        started(events)
        with Judge(task, target or config.target, fixed_candidates=True, progress=tell) as judge:
            replayed = replay_calls(events, Toolbox(judge))
            if as_json:
                agreed = _replay_json(found.run.id, rollout, replayed) and agreed
            else:
                agreed = _replay_table(console, f"{task.name}, {rollout}", replayed) and agreed
    if not agreed:
        raise typer.Exit(1)


def _show_json(found: Found) -> None:
    _print_json("run", found.run.config())
    for rollout in found.rollouts:
        events = found.run.events(rollout)
        for event in events:
            typer.echo(event.model_dump_json())
        _print_json("summary", summarize(events))


def _replay_json(run: str, rollout: str, replayed: Iterable[Replayed]) -> bool:
    agreed = True
    for call in replayed:
        _print_json("replayed", call, run=run, rollout=rollout, agrees=call.agrees)
        agreed = agreed and call.agrees
    return agreed


def _print_json(event: str, record: Record, **more: str | bool) -> None:
    """One JSON object on one line; what is not an event of the transcript is told apart by its own `event`."""
    typer.echo(json.dumps({"event": event, **more, **json.loads(record.model_dump_json())}))


def _replay_table(console: Console, title: str, replayed: Iterable[Replayed]) -> bool:
    table = Table(title=Text(title), title_justify="left")
    for name in ("turn", "tool", "candidate", "recorded", "here"):
        table.add_column(name)
    for name in ("time then", "time here", "speedup then", "speedup here"):
        table.add_column(name, justify="right")
    agreed = True
    for call in replayed:
        then, here = call.recorded, call.replayed
        same = "" if call.agrees else f", but {then.verdict} was recorded"
        console.print(
            Text(f"turn {call.turn}  {printable(call.tool)}  {here.verdict}{same}  [{call.seconds:.1f} s]"),
            soft_wrap=True,
        )
        table.add_row(
            str(call.turn),
            Text(printable(call.tool)),
            short(call.candidate),
            verdict(then),
            verdict(here) if call.agrees else Text(here.verdict, style="bold yellow"),
            duration(then.median_ns),
            duration(here.median_ns),
            speedup(then),
            speedup(here),
        )
        agreed = agreed and call.agrees
    console.print(table)
    return agreed
