"""What `import` does: makes a run of a file and prints what was found in it."""

from pathlib import Path

import typer

from runs.importing.draft import UNKNOWN
from runs.importing.importing import ImportedRun, make_run
from runs.importing.kernels import Kernels, is_python
from runs.importing.reading import Format, read_source
from runs.places import LOCAL
from runs.terminal import printable


def import_file(path: Path, task: str | None, out: Path | None, wanted: str | None) -> None:
    """Import a file and say what became of it."""
    source = read_source(path, None if wanted is None else Format(wanted))
    made = make_run(source, task, out or LOCAL)
    typer.echo(printable(f"imported {source.origin.file}, format {source.origin.format}: {made.run.path}"))
    typer.echo(f"{_found(made)}; how it all went: kernelwright show {made.run.path}")
    if task is None:
        typer.echo(_task(made))
    if lost := _lost(made.kernels):
        typer.echo(lost)
    if made.kernels.candidates:
        name = "TASK" if made.task == UNKNOWN else made.task
        typer.echo(f"what its kernels are worth here: kernelwright score {name} {made.run.candidates}")


def _found(made: ImportedRun) -> str:
    turns = sum(draft.turns for draft in made.drafts)
    calls = sum(draft.calls for draft in made.drafts)
    parts = (
        _count(len(made.drafts), "conversation"),
        _count(turns, "turn"),
        _count(calls, "tool call"),
        _count(len(made.kernels.candidates), "candidate"),
    )
    return ", ".join(parts)


def _lost(kernels: Kernels) -> str:
    """What cannot run, because a file lost line breaks or indentation, or a model wrote it so; nothing is repaired."""
    broken = sum(not is_python(candidate.text) for candidate in kernels.candidates.values())
    parts = [_count(broken, "candidate")] if broken else []
    if kernels.damaged:
        parts.append(f"{_count(kernels.damaged, 'code block')} with ModelNew, left in the transcript only")
    return f"no valid Python, perhaps for lost line breaks or indentation: {', '.join(parts)}" if parts else ""


def _task(made: ImportedRun) -> str:
    if made.task == UNKNOWN:
        return "its text does not say beyond doubt which task it is about; import it again with --task NAME if you know"
    return f"task: {made.task}, as its text says; if that is wrong, import it again with --task NAME"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
