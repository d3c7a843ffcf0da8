"""What `tasks` prints: the list of the problems, or one with its facts and source."""

import json

import typer
from rich.console import Console
from rich.table import Table

from tasks.loader import Task
from tasks.spec import InputSpec, Target

_PLAIN_WIDTH = 120


def list_tasks(tasks: tuple[Task, ...], as_json: bool) -> None:
    """Print one line for each task."""
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


def show_task(task: Task, as_json: bool) -> None:
    """Print one task's facts and source."""
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
        from rich.syntax import Syntax

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
