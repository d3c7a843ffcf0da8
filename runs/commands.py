"""The commands on runs that were recorded: `show`, `replay`, `import` and `export`."""

from pathlib import Path
from typing import Annotated, Literal

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
    app.command("import")(import_)
    app.command()(export)


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


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A seed transcript, chat messages as JSON or JSONL, or an ATIF trajectory."
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The task it is about, or a problem file's path; by default what its text leaves no doubt of.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the run goes; runs/local by default.")] = None,
    format: Annotated[
        Literal["seed", "chat", "atif"] | None, typer.Option(help="The file's format; by default found by its content.")
    ] = None,
) -> None:
    """Make a run of what another agent recorded: `show` reads it, and `score` takes the kernels found in it."""
    from runs.importing.report import import_file

    import_file(file, task, out, format)


def export(
    run: RunArgument,
    to: Annotated[
        Literal["atif", "chat", "otlp"],
        typer.Option(
            help="An ATIF v1.7 trajectory; chat messages for fine-tuning, a rollout a line, with verdict and speedup "
            "as reward; or OpenTelemetry spans, sent over OTLP/HTTP (needs the extra `otel`)."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where atif and chat go; standard output by default.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where otlp goes; by default what OTEL_EXPORTER_OTLP_ENDPOINT names."),
    ] = None,
    with_content: Annotated[
        bool, typer.Option("--with-content", help="Put prompts, replies, arguments and results into the spans.")
    ] = False,
) -> None:
    """Write a run in a form that other programs read, or send it to a collector of traces."""
    from runs.exporting.command import export_run

    export_run(run, to, out, endpoint, content=with_content)
