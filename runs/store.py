"""The store of runs: directories that only ever grow.

<root>/<task>/<run-id>/run.json                        the configuration
<root>/<task>/<run-id>/<rollout>/transcript.jsonl      the event log
<root>/<task>/<run-id>/candidates/<candidate id>.py    every attempt, once
"""

import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from runs.config import RunConfig
from runs.events import Event
from runs.lines import line_of
from runs.reading import first_complaint, read_transcript
from tasks.errors import RunFormatError, StorageError, UsageError

CONFIG_NAME = "run.json"
TRANSCRIPT_NAME = "transcript.jsonl"
CANDIDATES_NAME = "candidates"


@dataclass(frozen=True)
class RunDirectory:
    """One run on disk."""

    path: Path

    @property
    def id(self) -> str:
        """The run's id: the name of its directory."""
        return self.path.name

    @property
    def candidates(self) -> Path:
        """The directory of the candidates' texts."""
        return self.path / CANDIDATES_NAME

    def config(self) -> RunConfig:
        """The run's configuration; raises RunFormatError where it cannot be read."""
        path = self.path / CONFIG_NAME
        try:
            return RunConfig.model_validate_json(path.read_bytes())
        except OSError as error:
            raise RunFormatError(f"{path} cannot be read ({error.strerror}); a run's directory holds it.") from error
        except ValidationError as error:
            said = first_complaint(error)
            raise RunFormatError(f"{path} does not have the form of a run's configuration: {said}") from error

    def rollouts(self) -> tuple[str, ...]:
        """The names of the rollouts that have a transcript, in order."""
        names = (path.parent.name for path in self.path.glob(f"*/{TRANSCRIPT_NAME}"))
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    def transcript(self, rollout: str) -> Path:
        """Where the transcript of a rollout is, or will be."""
        return self.path / rollout / TRANSCRIPT_NAME

    def events(self, rollout: str) -> tuple[Event, ...]:
        """The events of a rollout."""
        return read_transcript(self.transcript(rollout))

    def write_beginning(self, rollout: str, events: Sequence[Event]) -> None:
        """Begin a rollout's transcript with several events at once; it is there whole or not at all.

        Raises:
            UsageError: it exists already.
            StorageError: it cannot be written.
        """
        path = self.transcript(rollout)
        numbered = (event.model_copy(update={"sequence": number}) for number, event in enumerate(events))
        try:
            path.parent.mkdir(exist_ok=True)
            if path.exists():
                raise UsageError(f"{path} exists already; a transcript is never written over.")
            _write_atomically(path, b"".join(line_of(event) for event in numbered))
        except OSError as error:
            raise StorageError(f"{path} cannot be written ({error.strerror}). Make room, and do it again.") from error

    def candidate_text(self, candidate_id: str) -> str:
        """The text of a candidate that was kept; raises RunFormatError where it cannot be read."""
        path = self._candidate(candidate_id)
        try:
            return path.read_bytes().decode("utf-8", "surrogatepass")
        except (OSError, UnicodeDecodeError) as error:
            raise RunFormatError(f"The candidate {path} cannot be read: {error}. Restore the file.") from error

    def save_candidate(self, candidate_id: str, text: str) -> None:
        """Keep a candidate's text, once.

        Raises:
            RunFormatError: the id is none.
            StorageError: it cannot be written, for example because the disk is full.
        """
        path = self._candidate(candidate_id)
        try:
            if not path.exists():
                _write_atomically(path, text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise StorageError(
                f"The candidate {path} cannot be written ({error.strerror}). Make room, or make it writable again; "
                "then `kernelwright resume` goes on."
            ) from error

    def _candidate(self, candidate_id: str) -> Path:
        """Where a candidate's text is. Ids are read from transcripts, which others may have written."""
        if not re.fullmatch(r"\w+", candidate_id, re.ASCII):
            raise RunFormatError(
                f"{candidate_id[:80]!r} is no candidate's id. The transcript in {self.path} is damaged."
            )
        return self.candidates / f"{candidate_id}.py"


def new_run_id(now: datetime) -> str:
    """An id that sorts by time and does not collide."""
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def check_writable(root: Path) -> None:
    """Raise UsageError now, before anything is spent, if runs cannot be written below a directory."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise _unwritable(root, error) from error


def create_run(root: Path, config: RunConfig) -> RunDirectory:
    """Make a run's directory, below a root, with its configuration in it."""
    return create_run_at(root / config.task / config.id, config)


def create_run_at(path: Path, config: RunConfig) -> RunDirectory:
    """Make a run's directory, which may be there but empty, with its configuration in it.

    Raises:
        UsageError: it holds something, or cannot be written.
    """
    run = RunDirectory(path)
    try:
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        run.path.mkdir(parents=True)
        run.candidates.mkdir()
        _write_atomically(run.path / CONFIG_NAME, config.model_dump_json(indent=2).encode() + b"\n")
    except FileExistsError as error:
        raise UsageError(
            f"{run.path} exists already; a run is never written over. Choose another directory."
        ) from error
    except OSError as error:
        raise _unwritable(run.path, error) from error
    return run


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written ({error.strerror}). Choose another directory (--out, or --run of `tool`), or make "
        "room."
    )


def _write_atomically(path: Path, content: bytes) -> None:
    """The file is there whole or not at all, also after a power failure."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
