"""The command `scores`: how good recorded runs were, from their transcripts alone."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(scores)


def scores(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs as `show` takes them, or folders of runs, such as runs/recorded."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object a line on standard output, nothing else.")
    ] = False,
) -> None:
    """Score what recorded rollouts submitted: fast_p, geometric mean, pass@k. Nothing is evaluated again. Exits with 1
    if a run cannot be read."""
    from evals.recorded_table import report_scores

    report_scores(runs, as_json)
