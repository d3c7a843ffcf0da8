"""What `replay` does: carries a recorded run's tool calls out again and lays recorded and new results side by side."""

from collections.abc import Iterable

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runs.find import find_run
from runs.replay import Replayed, replay_calls
from runs.showing import print_json
from runs.summary import started
from runs.terminal import duration, make_console, printable, short, speedup, verdict
from tasks.errors import UsageError
from tasks.loader import find_task
from tasks.spec import Target
from tools.required_sandbox import RequiredSandbox, require_sandbox


def replay_run(asked: str, target: Target | None, as_json: bool, require: RequiredSandbox | None) -> None:
    """Replay the run that is meant; ends the program with 1 where a verdict differs."""
    found = find_run(asked)
    config = found.run.config()
    chosen = target or config.target
    if config.imported_from is not None or chosen is None:
        raise UsageError(
            f"The run {found.run.id} was imported: its calls were made to tools that are not here. Evaluate its "
            f"candidates instead: kernelwright score TASK {found.run.candidates}"
        )
    task = find_task(config.task_argument)
    require_sandbox(require, chosen)
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
        with Judge(task, chosen, fixed_candidates=True, progress=tell) as judge:
            replayed = replay_calls(events, Toolbox(judge))
            if as_json:
                agreed = _replay_json(found.run.id, rollout, replayed) and agreed
            else:
                agreed = _replay_table(console, f"{task.name}, {rollout}", replayed) and agreed
    if not agreed:
        raise typer.Exit(1)


def _replay_json(run: str, rollout: str, replayed: Iterable[Replayed]) -> bool:
    agreed = True
    for call in replayed:
        print_json("replayed", call, run=run, rollout=rollout, agrees=call.agrees)
        agreed = agreed and call.agrees
    return agreed


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
