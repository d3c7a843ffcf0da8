"""The commands that read runs: `show` and `replay`."""

from typing import Annotated

import typer

from tasks.target import Target
from tools.required_sandbox import RequireSandboxOption

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's path, or its id, or a beginning of the id that fits one run only.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON object a line on standard output, only that.")]


def register(app: typer.Typer) -> None:
    """Add this floor's commands."""
    app.command()(show)
    app.command()(replay)


def show(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run's path, or its id, or a beginning of the id that fits one run only; or a folder of runs.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a run: reasoning, calls, code, results, and the table of turns; without RUN, list all, newest first."""
    from runs.showing import show_run, show_runs

    if run is None:
        show_runs(as_json=as_json)
    else:
        show_run(run, as_json)


def replay(
    run: RunArgument,
    target: Annotated[
        Target | None, typer.Option(help="Where to carry the calls out; the recorded target by default.")
    ] = None,
    as_json: JsonOption = False,
    require: RequireSandboxOption = None,
) -> None:
    """Carry a recorded run's tool calls out again here, beside the recorded results. Exits 1 if a verdict differs."""
    from runs.replaying import replay_run

    replay_run(run, target, as_json, require)
