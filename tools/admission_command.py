"""What `tasks --admit` does: tries tasks' checks with mutants and honest computations, and prints the margins."""

from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.errors import UsageError
from tasks.loader import Task
from tasks.spec import Target
from tools.required_sandbox import RequiredSandbox, require_sandbox

if TYPE_CHECKING:
    from tools.admission import Admission, HonestTried, MutantTried

_PLAIN_WIDTH = 160


def admit_tasks(tasks: tuple[Task, ...], target: Target | None, require: str | None, as_json: bool) -> None:
    """Try every task and print what came of it; ends the program with 1 if one of them is not admitted."""
    # Trying needs PyTorch; a wrong name must be reported before it is imported.
    from tools.admission import admit
    from tools.targets import default_target

    chosen = target or default_target()
    require_sandbox(_required(require), chosen)
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)
    admitted = True
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    with progress.status("starting the judge") as status:
        for task in tasks:
            admission = admit(task, chosen, lambda step: status.update(Text(step)))
            admitted &= admission.admitted
            if as_json:
                typer.echo(admission.model_dump_json())
            else:
                _print(console, admission)
    if not admitted:
        raise typer.Exit(1)


def _required(name: str | None) -> RequiredSandbox | None:
    try:
        return None if name is None else RequiredSandbox(name)
    except ValueError as error:
        known = ", ".join(RequiredSandbox)
        raise UsageError(f"--require-sandbox knows {known}, not {name!r}") from error


def _print(console: Console, admission: "Admission") -> None:
    title = Text(f"{admission.task} on {admission.target}, precision class {admission.precision}")
    table = Table(title=title, title_justify="left")
    for name in ("variant", "what it does", "verdict"):
        table.add_column(name)
    # A mutant is tried up to the check that it fails, an honest computation at all; what is shown is not the same.
    table.add_column("error / limit (first failed, or largest)", justify="right")
    for mutant in admission.mutants:
        table.add_row(Text(mutant.name), Text(mutant.does), _verdict(mutant), _ratio(mutant.excess))
    table.add_section()
    for variant in admission.honest:
        table.add_row(Text(variant.name), Text(variant.does), _verdict(variant), _ratio(variant.used))
    console.print(table)
    for omitted in admission.not_tried:
        console.print(Text(f"not tried: {omitted.name}: {omitted.reason}"))
    console.print(Text(_conclusion(admission)))
    console.print()


def _verdict(tried: "MutantTried | HonestTried") -> Text:
    return Text(tried.verdict, style="green" if tried.as_it_must else "red")


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _conclusion(admission: "Admission") -> str:
    if admission.admitted:
        least = min((tried.excess for tried in admission.mutants if tried.excess is not None), default=None)
        closest = max((tried.used for tried in admission.honest if tried.used is not None), default=None)
        return (
            f"{admission.task} is admitted: all {len(admission.mutants)} mutants are incorrect (each at the first "
            f"check that failed, by at least {_ratio(least)} times its limit), all {len(admission.honest)} honest "
            f"computations correct (at all checks, by at most {_ratio(closest)} of the limit); "
            f"{admission.seconds:.0f} s"
        )
    lines = [f"{admission.task} is NOT admitted; change its inputs, shapes, precision class or Model:"]
    for mutant in admission.mutants:
        if not mutant.as_it_must:
            lines.append(f"  {mutant.name} must be incorrect and is {mutant.verdict}. {mutant.message}".rstrip())
    for variant in admission.honest:
        if not variant.as_it_must:
            lines.append(f"  {variant.name} must be correct and is {variant.verdict}. {variant.message}".rstrip())
    return "\n".join(lines)
