"""The command `tasks`: lists the problems, shows one with its facts and source, or has its checks tried."""

import json
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from tasks.errors import UsageError
from tasks.loader import Task, all_tasks, find_task
from tasks.spec import InputSpec, Target

_PLAIN_WIDTH = 120


Admit = Callable[[tuple[Task, ...], Target | None, str | None, bool], None]
"""Tries tasks on a target (None for the machine's own) in at least the named sandbox, and prints what came of it, as
JSON if the last is true."""


def register(app: typer.Typer, admit: Admit) -> None:
    """Add this floor's command; trying a task needs the tools, which this floor does not see, hence `admit`."""

    def show_tasks(
        name: Annotated[
            str | None,
            typer.Argument(metavar="[NAME]", help="A task's name, or the path of a task or KernelBench problem file."),
        ] = None,
        admitting: Annotated[
            bool,
            typer.Option(
                "--admit",
                help="Try whether mutants of the reference fail on the task, and honest computations pass; on all "
                "tasks without NAME. Exits with 0: admitted, 1: not, 2: bad usage, 3: unavailable.",
            ),
        ] = False,
        target: Annotated[
            Target | None,
            typer.Option(help="With --admit: where to try; by default cuda where there is a GPU, else cpu."),
        ] = None,
        require: Annotated[
            str | None,
            typer.Option(
                "--require-sandbox",
                metavar="[landlock|platform|bubblewrap]",
                help="With --admit: try nothing unless the sandbox is at least this. Exits with 3 where it is less.",
            ),
        ] = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="Write one JSON object a line on standard output, nothing else.")
        ] = False,
    ) -> None:
        """List the tasks, show one task's facts and source, or try what a task's checks can see."""
        if admitting:
            admit(all_tasks() if name is None else (find_task(name),), target, require, as_json)
        elif target is not None or require is not None:
            option = "--require-sandbox" if target is None else "--target"
            raise UsageError(f"{option} says where --admit tries a task; give both, or neither")
        elif name is None:
            _list(all_tasks(), as_json)
        else:
            _show(find_task(name), as_json)

    app.command(name="tasks")(show_tasks)


def _list(tasks: tuple[Task, ...], as_json: bool) -> None:
    if as_json:
        for task in tasks:
            typer.echo(json.dumps(_facts(task)))
        return
    table = Table("task", "what it computes", "shape on cuda", "shape on cpu", "precision")
    for task in tasks:
        shapes = [", ".join(_shape(task, spec, target) for spec in task.facts.inputs) for target in Target]
        precision = f"{task.facts.precision.cuda}, {task.facts.precision.cpu}"
        table.add_row(task.name, f"{task.facts.title} ({task.mode} mode)", *shapes, precision)
    _console().print(table)


def _show(task: Task, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**_facts(task), "source": task.source}))
        return
    facts = task.facts
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("task", task.name)
    table.add_row("computes", facts.title)
    table.add_row("mode", task.mode)
    for target in Target:
        shapes = ", ".join(f"{spec.name}: {_shape(task, spec, target)} {spec.dtype}" for spec in facts.inputs)
        table.add_row(f"on {target}", f"{shapes}; precision class {facts.precision_on(target)}")
    for axis in facts.axes:
        multiple = "" if axis.multiple_of == 1 else f", multiples of {axis.multiple_of}"
        table.add_row(f"axis {axis.name}", f"any size from {axis.minimum}{multiple}")
    if facts.causal_axis is not None:
        table.add_row("causal along", facts.causal_axis)
    if facts.state and task.mode == "train":
        table.add_row("state compared", ", ".join(facts.state))
    table.add_row("receptive field", str(facts.receptive_field))
    table.add_row("used in", facts.used_in)
    table.add_row("notes", facts.notes)
    table.add_row("file", str(task.path))
    console = _console()
    console.print(table, markup=False)
    console.print()
    if console.is_terminal:
        console.print(Syntax(task.source, "python"))
    else:
        typer.echo(task.source)


def _facts(task: Task) -> dict[str, object]:
    return {"task": task.name, "mode": task.mode, "file": str(task.path), **task.facts.model_dump(mode="json")}


def _shape(task: Task, spec: InputSpec, target: Target) -> str:
    sizes = task.facts.benchmark_sizes(target)
    return " x ".join(str(sizes[dim] if isinstance(dim, str) else dim) for dim in spec.dims)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)
