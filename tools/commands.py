"""The command `doctor`: what this machine can do, what is missing, how to fix it."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.spec import Target
from tools.doctor import Finding, Report, examine

_PLAIN_WIDTH = 120
_STYLES = {"ok": "green", "missing": "red", "note": "yellow"}


def register(app: typer.Typer) -> None:
    """Add this floor's command."""
    app.command()(doctor)


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object a line on standard output, nothing else.")
    ] = False,
) -> None:
    """Say what this machine can do, what is missing, and how to fix it. Exits with 3 if no target works."""
    report = examine()
    if as_json:
        for finding in report.findings:
            typer.echo(finding.model_dump_json())
        for target in Target:
            typer.echo(_verdict_on(report, target).model_dump_json())
    else:
        _print(report)
    if not any(report.works(target) for target in Target):
        raise typer.Exit(3)


def _print(report: Report) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    table = Table("", "", "found", "what to do")
    for finding in (*report.findings, *(_verdict_on(report, target) for target in Target)):
        mark = Text(finding.status, style=_STYLES[finding.status])
        table.add_row(finding.check, mark, Text(finding.found, overflow="fold"), Text(finding.remedy))
    console.print(table)


def _verdict_on(report: Report, target: Target) -> Finding:
    """What the findings mean for a target, in the form of a finding."""
    check = f"target {target}"
    if report.works(target):
        return Finding(check=check, status="ok", found="works here")
    return Finding(check=check, status="missing", found=f"does not work; lacks: {', '.join(report.lacks(target))}")
