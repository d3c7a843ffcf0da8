"""The command `attacks`: tries every known exploit, and honest candidates that look like one, on this machine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evals.attack_files import attack_files
from tasks.target import Target
from tools.required_sandbox import RequireSandboxOption, require_sandbox
from tools.verdict import Verdict

if TYPE_CHECKING:
    from evals.attacks import AttackLine

_PLAIN_WIDTH = 160


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(attacks)


def attacks(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these files of the suite; by default all.")
    ] = None,
    target: Annotated[
        Target | None, typer.Option(help="Where candidates run; by default cuda where there is a GPU, else cpu.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object a line on standard output, nothing else.")
    ] = False,
    require: RequireSandboxOption = None,
) -> None:
    """Try known exploits on this machine. Exits with 0: all as expected, 1: some not, 2: bad usage, 3: unavailable."""
    # Evaluating needs PyTorch; a wrong name must be reported before it is imported.
    if target is None:
        from tools.targets import default_target

        target = default_target()
    files = attack_files(target, names or ())
    require_sandbox(require, target)
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    lines: list[AttackLine] = []
    from evals.attacks import AttackSuite

    with AttackSuite(target) as suite, progress.status("starting the judge") as status:
        for file in files:
            status.update(Text(f"{file.name}: {file.tries}"))
            line = suite.run(file)
            lines.append(line)
            problem = "" if line.ok else f"; {line.problem}"
            progress.print(Text(f"[{len(lines)}/{len(files)}] {line.name}: {line.got}{problem}"))
            if as_json:
                typer.echo(line.model_dump_json())
    if not as_json:
        console = Console(highlight=False)
        _print(console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH), lines)
    if any(line.got is Verdict.UNAVAILABLE for line in lines):
        raise typer.Exit(3)
    if not all(line.ok for line in lines):
        raise typer.Exit(1)


def _print(console: Console, lines: "Sequence[AttackLine]") -> None:
    table = Table("name", "kind", "expected", "got")
    table.add_column("seconds", justify="right")
    table.add_column("ok")
    for line in lines:
        style = "green" if line.ok else "red"
        table.add_row(
            Text(line.name),
            line.kind,
            _listed(line.expected),
            Text(line.got, style=style),
            f"{line.seconds:.1f}",
            Text("yes" if line.ok else "NO", style=style),
        )
    console.print(table)
    for line in lines:
        if not line.ok:
            console.print(Text(f"{line.name}: {line.problem}"))
    counts = [
        f"{sum(line.ok for line in lines if line.kind == kind)} of {sum(line.kind == kind for line in lines)} {words}"
        for kind, words in (("attack", "attacks"), ("honest", "honest candidates"))
    ]
    seconds = sum(line.seconds for line in lines)
    console.print(f"{' and '.join(counts)} got the verdict they must, in {seconds:.0f} s")


def _listed(verdicts: Sequence[Verdict]) -> str:
    return " or ".join(verdicts)
