"""What `doctor` prints: the findings, then what they mean for each target."""

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.target import Target
from tools.doctor import Finding, Report, examine

_PLAIN_WIDTH = 120
_STYLES = {"ok": "green", "missing": "red", "note": "yellow"}


def report_findings(as_json: bool) -> None:
    """Examine the machine and print what was found; ends the program with 3 where no target works."""
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
