"""The command `score`: evaluates candidates' files on one task and reports how good they are."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.text import Text

from tasks.errors import UsageError
from tasks.target import Target
from tools.candidate import Candidate
from tools.engines import Engine
from tools.required_sandbox import RequiredSandbox, RequireSandboxOption, require_sandbox
from tools.verdict import Verdict

if TYPE_CHECKING:
    from evals.score_line import ScoreLine
    from tasks.loader import Task

_PLAIN_WIDTH = 160


@dataclass(frozen=True)
class _Request:
    """What the command line asks of the pool."""

    task: "Task"
    target: Target | None
    require: RequiredSandbox | None
    engine: Engine
    address: str
    allow_library: bool
    strict: bool


def register(app: typer.Typer) -> None:
    """Add this floor's command."""
    app.command()(score)


def score(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task's name, or the path of a task or KernelBench problem file.")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Candidates: modules that define ModelNew. Of a folder all *.py files are taken."
        ),
    ],
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
    engine: Annotated[
        Engine, typer.Option(help="Where to evaluate: on this machine, or on a Ray cluster (needs the extra `ray`).")
    ] = Engine.LOCAL,
    address: Annotated[str, typer.Option(help="The address of the Ray cluster.")] = "auto",
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Run what was verified under compute-sanitizer too; what it finds in a CUDA kernel is a fault.",
        ),
    ] = False,
) -> None:
    """Build, verify and benchmark each FILE. Exits with 0: all correct, 1: some not, 2: bad usage, 3: unavailable."""
    from tasks.loader import find_task

    found = find_task(task)
    candidates = _read(_files(files))
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    lines: list[ScoreLine | None] = [None] * len(candidates)
    done = shown = 0
    with progress.status(f"starting the judges of {found.name}") as status:
        request = _Request(found, target, require, engine, address, allow_library, strict)
        for at, line in _evaluate(request, candidates, status):
            lines[at] = line
            done += 1
            progress.print(Text(f"[{done}/{len(candidates)}] {_progress(line)}"))
            # Results come as they are found; on standard output they stand in the order of the files.
            while as_json and shown < len(lines) and (next_line := lines[shown]) is not None:
                typer.echo(next_line.model_dump_json())
                shown += 1
    _conclude([line for line in lines if line is not None], as_json=as_json)


def _conclude(lines: "Sequence[ScoreLine]", *, as_json: bool) -> None:
    from evals.score_table import print_scores

    if not as_json:
        console = Console(highlight=False)
        print_scores(console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH), lines)
    verdicts = {line.verdict for line in lines}
    if Verdict.UNAVAILABLE in verdicts:
        raise typer.Exit(3)
    if verdicts != {Verdict.CORRECT}:
        raise typer.Exit(1)


def _files(named: Sequence[Path]) -> list[Path]:
    """The files that were named, and those of the folders that were."""
    found: list[Path] = []
    for path in named:
        inside = sorted(path.glob("*.py")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"{path} holds no *.py file. Nothing was evaluated; name a folder of candidates")
        found += inside
    return found


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
    request: _Request, candidates: Sequence[tuple[Path, Candidate]], status: Status
) -> "Iterator[tuple[int, ScoreLine]]":
    """The lines as they are found, each with its place among the candidates."""
    # Evaluating needs PyTorch; a wrong name or file must be reported before it is imported.
    from evals.score_line import score_line
    from tools.engines import sites
    from tools.jobs import Job, JobTask
    from tools.pool import Pool
    from tools.targets import default_target

    chosen = request.target or default_target()
    require_sandbox(request.require, chosen)
    precision = request.task.facts.precision_on(chosen)
    task = JobTask.of(request.task)
    jobs = [
        Job(
            task=task,
            target=chosen,
            text=each.text,
            allow_library=request.allow_library,
            strict=request.strict,
            fixed_candidates=True,
        )
        for _, each in candidates
    ]
    # Equal texts are the same job, in as many files as there are.
    places: dict[str, deque[int]] = defaultdict(deque)
    for at, job in enumerate(jobs):
        places[job.id].append(at)
    with Pool(sites(request.engine, request.address, chosen, lambda message: status.update(Text(message)))) as pool:
        for found in pool.evaluate(jobs):
            at = places[found.job].popleft()
            yield at, score_line(found.evaluation, candidates[at][0], precision)


def _progress(line: "ScoreLine") -> str:
    from evals.score_table import format_speedup

    figures = "" if line.speedup is None else f" {format_speedup(line.speedup, line.speedup_interval)}"
    return f"{line.file}: {line.verdict}{figures}"
