"""The command line of Kernelwright, composed of the floors' own commands."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

import agent.commands
import evals.attack_command
import evals.commands
import evals.recorded_command
import runs.commands
import tasks.commands
import tools.commands
from tasks.errors import KernelwrightError, UnavailableError, UsageError
from tasks.target import Target

if TYPE_CHECKING:
    from tasks.loader import Task

app = typer.Typer(
    help="Makes CUDA kernels for 1D convolutions faster, and proves every speedup it reports.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        typer.echo(f"kernelwright {version('kernelwright')}")
    except PackageNotFoundError:
        typer.echo("kernelwright, run from a checkout that is not installed")
    raise typer.Exit()


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


def _admit(found: "tuple[Task, ...]", target: Target | None, require: str | None, as_json: bool) -> None:
    from tools.admission_command import admit_tasks

    admit_tasks(found, target, require, as_json)


# The commands' modules hold what the command line must know of them; what a command does is imported when it is called.
tasks.commands.register(app, _admit)
for floor in (
    tools.commands,
    agent.commands,
    runs.commands,
    evals.commands,
    evals.recorded_command,
    evals.attack_command,
):
    floor.register(app)


def main() -> None:
    """Run the command line; an error of Kernelwright's own becomes one line and an exit code."""
    # Threads of the judge that wait for more to do would keep a core from the worker that is timed: on two cores a call
    # of 5.2 ms then took 9.1 in two evaluations of five. PyTorch is not imported yet; workers wait as they always do.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        app()
    except KernelwrightError as error:
        print(f"kernelwright: {error}", file=sys.stderr)
        sys.exit(_exit_code(error))


def _exit_code(error: KernelwrightError) -> int:
    if isinstance(error, UsageError):
        return 2
    return 3 if isinstance(error, UnavailableError) else 4


if __name__ == "__main__":
    main()
