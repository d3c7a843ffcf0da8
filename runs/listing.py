"""Which runs there are, newest first, read from as few bytes as will do: a run's configuration and the ends of its
transcripts. What cannot be read is listed too, with what is wrong; damage within a transcript shows when it is read."""

import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from runs.config import RunConfig
from runs.events import EVENT, SCHEMA_VERSION, Ended, EndReason, Event
from runs.reading import read_transcript
from runs.store import CANDIDATES_NAME, CONFIG_NAME, TRANSCRIPT_NAME, RunDirectory
from runs.summary import started
from tasks.errors import RunFormatError
from tasks.record import Record
from tasks.spec import Target

_BEGINNING = re.compile(rb'"event":"rollout_started","schema_version":%d[,}]' % SCHEMA_VERSION)
_BEGINNING_BYTES = 512
_END_BYTES = 4096


class RolloutLine(Record):
    """How one rollout ended."""

    rollout: str
    reason: EndReason | None = None
    """None where no end was recorded: it goes on, or it was killed."""
    message: str = ""
    problem: str = ""
    """Why its transcript cannot be read; empty where it can."""


class RunLine(Record):
    """One run, or what lies where a run should."""

    run: str
    """`<task>/<id>`, as `show` takes it."""
    path: str
    created: AwareDatetime
    """As its configuration says; where that cannot be read, when its folder was last changed."""
    target: Target | None = None
    model: str | None = None
    planned: int | None = None
    """How many rollouts were asked for."""
    rollouts: tuple[RolloutLine, ...] = ()
    problem: str = ""
    """Why its configuration cannot be read; empty where it can."""


def list_all(roots: Sequence[Path]) -> list[RunLine]:
    """All runs below some roots, newest first."""
    lines = [_run_line(path) for root in roots for task in _folders(root) for path in _folders(task)]
    return sorted(lines, key=lambda line: (line.created, line.run), reverse=True)


def holds_runs(path: Path) -> bool:
    """Whether a folder is a root, such as `--out` makes one."""
    return any((run / CONFIG_NAME).is_file() for task in _folders(path) for run in _folders(task))


def _run_line(path: Path) -> RunLine:
    config: RunConfig | None = None
    problem = ""
    try:
        config = RunDirectory(path).config()
    except RunFormatError as error:
        problem = str(error)
    return RunLine(
        run=f"{path.parent.name}/{path.name}",
        path=str(path),
        created=_changed(path) if config is None else config.created,
        target=config and config.target,
        model=config and config.model,
        planned=config and config.rollouts,
        rollouts=tuple(_rollout_lines(path)),
        problem=problem,
    )


def _rollout_lines(path: Path) -> Iterator[RolloutLine]:
    rollouts = [folder for folder in _folders(path) if folder.name != CANDIDATES_NAME]
    for folder in sorted(rollouts, key=lambda folder: (len(folder.name), folder.name)):
        try:
            last = _last_event(folder / TRANSCRIPT_NAME)
        except FileNotFoundError:
            yield RolloutLine(rollout=folder.name, problem=f"{folder} holds no {TRANSCRIPT_NAME}")
        except (OSError, RunFormatError) as error:
            yield RolloutLine(rollout=folder.name, problem=str(error))
        else:
            ended = last if isinstance(last, Ended) else None
            yield RolloutLine(
                rollout=folder.name, reason=ended and ended.reason, message="" if ended is None else ended.message
            )


def _last_event(path: Path) -> Event:
    """The last event of a transcript, from its first and last bytes where these are as they should be.

    Raises:
        OSError: it cannot be opened.
        RunFormatError: it is no transcript.
    """
    with path.open("rb", buffering=0) as file:
        beginning = file.read(_BEGINNING_BYTES)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
        end = file.read()
    if _BEGINNING.search(beginning) and end.endswith(b"\n") and (line := end.rstrip(b"\n").rpartition(b"\n")[2]):
        try:
            return EVENT.validate_json(line)
        except ValidationError:
            pass  # Torn, longer than what was read, or foreign: the whole file tells.
    events = read_transcript(path)
    started(events)
    return events[-1]


def _changed(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return datetime.fromtimestamp(0, UTC)


def _folders(place: Path) -> list[Path]:
    """The folders in a folder; none where it cannot be looked into."""
    try:
        with os.scandir(place) as found:
            return [Path(item.path) for item in found if item.is_dir() and not item.name.startswith(".")]
    except OSError:
        return []
