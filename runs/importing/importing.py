"""Makes a run of a foreign file, whole or not at all, and says what was found in it."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from runs.config import Limits, RunConfig
from runs.events import Event
from runs.importing.draft import UNKNOWN, Draft
from runs.importing.kernels import Kernels
from runs.importing.reading import Source
from runs.importing.task_guess import KnownTasks
from runs.store import RunDirectory, check_writable, create_run, new_run_id
from tasks.errors import UsageError
from tasks.loader import find_task


@dataclass(frozen=True)
class ImportedRun:
    """A run that was made of a file, and what was found in it."""

    run: RunDirectory
    task: str
    drafts: Sequence[Draft]
    kernels: Kernels


def make_run(source: Source, task_argument: str | None, root: Path) -> ImportedRun:
    """Write the run of a file that was read; without a task's name, under the one its text leaves no doubt of.

    Raises:
        UsageError: there is no such task, or the run cannot be written. Then nothing is left behind.
    """
    task = _common_task(source.drafts) if task_argument is None else find_task(task_argument).name
    kernels = Kernels()
    transcripts: dict[str, list[Event]] = {}
    for number, draft in enumerate(source.drafts, start=1):
        rollout = f"rollout-{number}"
        transcripts[rollout] = kernels.find_in(draft.finish(rollout, task))
    config = _config(source, task, task_argument or task)
    check_writable(root)
    run = RunDirectory(root / task / config.id)
    try:
        with tempfile.TemporaryDirectory(dir=root, prefix=".importing-") as staging:
            staged = create_run(Path(staging), config)
            for rollout, events in transcripts.items():
                staged.write_beginning(rollout, events)
            for candidate in kernels.candidates.values():
                staged.save_candidate(candidate.id, candidate.text)
            run.path.parent.mkdir(exist_ok=True)
            staged.path.rename(run.path)
    except OSError as error:
        raise UsageError(
            f"{root} cannot be written ({error.strerror}); nothing was imported. Choose another --out."
        ) from error
    return ImportedRun(run, task, source.drafts, kernels)


def _common_task(drafts: Sequence[Draft]) -> str:
    """The one task of all conversations."""
    known = KnownTasks()
    guesses = {known.guess(draft) for draft in drafts}
    return (guesses.pop() or UNKNOWN) if len(guesses) == 1 else UNKNOWN


def _config(source: Source, task: str, task_argument: str) -> RunConfig:
    """What the file does not say stays open: the versions and the machine are those of wherever it was made."""
    now = datetime.now(UTC)
    models = {draft.model for draft in source.drafts}
    return RunConfig(
        id=new_run_id(now),
        created=now,
        task=task,
        task_argument=task_argument,
        target=None,
        model=models.pop() if len(models) == 1 else UNKNOWN,
        rollouts=len(source.drafts),
        limits=Limits(),
        versions={},
        machine=None,
        provenance=(
            f"Imported by `kernelwright import` from {source.origin.file} (format {source.origin.format}). "
            "Nothing in it was judged here."
        ),
        imported_from=source.origin,
    )
