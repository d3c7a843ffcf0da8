"""The commands that look after a machine: `doctor` and `cache`."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this floor's commands."""
    app.command()(doctor)
    app.command()(cache)


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object a line on standard output, nothing else.")
    ] = False,
) -> None:
    """Say what this machine can do, what is missing, and how to fix it. Exits with 3 if no target works."""
    from tools.doctor_table import report_findings

    report_findings(as_json)


def cache(
    emptying: Annotated[
        bool, typer.Option("--clear", help="Take away everything that no process uses, and say what stays.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object on standard output, nothing else.")
    ] = False,
) -> None:
    """Say what is kept between processes, how much, the bound, and where; or empty it. Running processes go on."""
    from tools.cache_report import report_cache

    report_cache(emptying, as_json)
