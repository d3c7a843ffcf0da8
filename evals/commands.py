"""The command `score`: evaluates candidates' files on one task and reports how good they are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.text import Text

from tasks.errors import UsageError
from tasks.target import Target
from tools.candidate import Candidate
from tools.required_sandbox import RequiredSandbox, RequireSandboxOption, require_sandbox
from tools.verdict import Verdict

if TYPE_CHECKING:
    from evals.score_line import ScoreLine
    from tasks.loader import Task

_PLAIN_WIDTH = 160


def register(app: typer.Typer) -> None:
    """Add this floor's command."""
    app.command()(score)


def score(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task's name, or the path of a task or KernelBench problem file.")
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Candidates: modules that define ModelNew.")],
    target: Annotated[
        Target | None, typer.Option(help="Where candidates run; by default cuda where there is a GPU, else cpu.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object a line on standard output, nothing else.")
    ] = False,
    allow_library: Annotated[
        bool, typer.Option("--allow-library", help="Accept arithmetic done by PyTorch or another library.")
    ] = False,
    require: RequireSandboxOption = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Run what was verified under compute-sanitizer too; what it finds in a CUDA kernel is a fault.",
        ),
    ] = False,
) -> None:
    """Build, verify and benchmark each FILE. Exits with 0: all correct, 1: some not, 2: bad usage, 3: unavailable."""
    from evals.score_table import print_scores
    from tasks.loader import find_task

    found = find_task(task)
    candidates = _read(files)
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    lines: list[ScoreLine] = []
    with progress.status(f"starting the judge of {found.name}") as status:
        for line in _evaluate(found, candidates, target, require, status, allow_library=allow_library, strict=strict):
            lines.append(line)
            progress.print(Text(f"[{len(lines)}/{len(candidates)}] {_progress(line)}"))
            if as_json:
                typer.echo(line.model_dump_json())
    if not as_json:
        console = Console(highlight=False)
        print_scores(console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH), lines)
    verdicts = {line.verdict for line in lines}
    if Verdict.UNAVAILABLE in verdicts:
        raise typer.Exit(3)
    if verdicts != {Verdict.CORRECT}:
        raise typer.Exit(1)


def _read(files: Sequence[Path]) -> list[tuple[Path, Candidate]]:
    """All files, before any is evaluated, so that a mistyped name costs no time."""
    candidates, unreadable = [], []
    for file in files:
        try:
            # Not read_text: a candidate's id must not depend on how its lines end on this machine.
            candidates.append((file, Candidate(file.read_bytes().decode("utf-8"))))
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append(f"{file}: {error.strerror if isinstance(error, OSError) else error}")
    if unreadable:
        raise UsageError(f"cannot read {'; '.join(unreadable)}. Nothing was evaluated; correct the names and try again")
    return candidates


def _evaluate(
    task: "Task",
    candidates: Sequence[tuple[Path, Candidate]],
    target: Target | None,
    require: RequiredSandbox | None,
    status: Status,
    *,
    allow_library: bool,
    strict: bool,
) -> "Iterator[ScoreLine]":
    # Evaluating needs PyTorch; a wrong name or file must be reported before it is imported.
    from evals.score_line import score_line
    from tools.judge import Judge
    from tools.targets import default_target

    chosen = target or default_target()
    require_sandbox(require, chosen)
    precision = task.facts.precision_on(chosen)
    with Judge(task, chosen, allow_library=allow_library) as judge:
        for file, candidate in candidates:
            status.update(Text(f"evaluating {file}"))
            yield score_line(judge.evaluate(candidate, strict=strict), file, precision)


def _progress(line: "ScoreLine") -> str:
    from evals.score_table import format_speedup

    figures = "" if line.speedup is None else f" {format_speedup(line.speedup, line.speedup_interval)}"
    return f"{line.file}: {line.verdict}{figures}"
