"""The command `tasks`: lists the problems, shows one with its facts and source, or has its checks tried."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tasks.errors import UsageError
from tasks.target import Target

if TYPE_CHECKING:
    from tasks.loader import Task

Admit = Callable[["tuple[Task, ...]", Target | None, str | None, bool], None]
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
        from tasks.listing import list_tasks, show_task
        from tasks.loader import all_tasks, find_task

        if admitting:
            admit(all_tasks() if name is None else (find_task(name),), target, require, as_json)
        elif target is not None or require is not None:
            option = "--require-sandbox" if target is None else "--target"
            raise UsageError(f"{option} says where --admit tries a task; give both, or neither")
        elif name is None:
            list_tasks(all_tasks(), as_json)
        else:
            show_task(find_task(name), as_json)

    app.command(name="tasks")(show_tasks)
