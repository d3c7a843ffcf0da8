"""The store of runs: directories that only ever grow.

<root>/<task>/<run-id>/run.json                        the configuration
<root>/<task>/<run-id>/<rollout>/transcript.jsonl      the event log
<root>/<task>/<run-id>/candidates/<candidate id>.py    every attempt, once
"""

import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from runs.config import RunConfig
from runs.events import EVENT, SCHEMA_VERSION, Event
from tasks.errors import RunFormatError, UsageError

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
            raise RunFormatError(f"{path} does not have the form of a run's configuration: {_first(error)}") from error

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

    def candidate_text(self, candidate_id: str) -> str:
        """The text of a candidate; raises RunFormatError where it cannot be read."""
        path = self.candidates / f"{candidate_id}.py"
        try:
            return path.read_bytes().decode("utf-8", "surrogatepass")
        except OSError as error:
            raise RunFormatError(
                f"{path} cannot be read ({error.strerror}); a run keeps all its candidates."
            ) from error

    def save_candidate(self, candidate_id: str, text: str) -> None:
        """Keep a candidate's text, once."""
        path = self.candidates / f"{candidate_id}.py"
        if not path.exists():
            _write_atomically(path, text.encode("utf-8", "surrogatepass"))


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
    """Make a run's directory with its configuration in it."""
    run = RunDirectory(root / config.task / config.id)
    try:
        run.path.mkdir(parents=True)
        run.candidates.mkdir()
    except FileExistsError as error:
        raise UsageError(f"{run.path} exists already; a run is never written over. Choose another --out.") from error
    except OSError as error:
        raise _unwritable(run.path, error) from error
    _write_atomically(run.path / CONFIG_NAME, config.model_dump_json(indent=2).encode() + b"\n")
    return run


def read_transcript(path: Path) -> tuple[Event, ...]:
    """The events of a transcript; a last line that was torn off while being written is left out."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunFormatError(f"The transcript {path} cannot be read ({error.strerror}).") from error
    ended_properly = lines[-1] == b""
    if ended_properly:
        lines.pop()
    events: list[Event] = []
    for number, line in enumerate(lines, start=1):
        try:
            events.append(EVENT.validate_json(line))
        except ValidationError as error:
            if number == len(lines) and not (ended_properly and _is_json(line)):
                break
            raise _unreadable_line(path, number, line, error) from error
    return tuple(events)


def _unreadable_line(path: Path, number: int, line: bytes, error: ValidationError) -> RunFormatError:
    version = _schema_version(line)
    if number == 1 and version not in (None, SCHEMA_VERSION):
        return RunFormatError(
            f"{path} has schema version {version}, and this Kernelwright reads version {SCHEMA_VERSION}. "
            "Read it with the version that wrote it."
        )
    return RunFormatError(f"Line {number} of {path} is not an event of a transcript: {_first(error)}")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _schema_version(line: bytes) -> object:
    value = json.loads(line) if _is_json(line) else None
    return value.get("schema_version") if isinstance(value, dict) else None


def _first(error: ValidationError) -> str:
    """The first complaint of a validation, short."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{first['msg']} (at {where})" if where else first["msg"]


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written ({error.strerror}). Choose another directory with --out, or make room."
    )


def _write_atomically(path: Path, content: bytes) -> None:
    """The file is there whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritable(path, error) from error
