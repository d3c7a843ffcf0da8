"""The reader of a transcript: whole events; lines that were torn off while being written are left out."""

import json
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from runs.events import EVENT, SCHEMA_VERSION, Event, Resumed, RolloutStarted
from tasks.errors import RunFormatError


def read_transcript(path: Path) -> tuple[Event, ...]:
    """The events of a transcript.

    A torn line may be its last, or stand before the event with which the next process went on.

    Raises:
        RunFormatError: it cannot be read, or holds anything else that is not an event.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunFormatError(f"The transcript {path} cannot be read ({error.strerror}).") from error
    whole_at_end = lines[-1] == b""
    if whole_at_end:
        lines.pop()
    events: list[Event] = []
    torn: list[_Unreadable] = []
    for number, line in enumerate(lines, start=1):
        try:
            event = EVENT.validate_json(line)
        except ValidationError as error:
            torn.append(_Unreadable(number, line, error))
            is_last_and_open = number == len(lines) and not whole_at_end
            if _is_json(line) and not is_last_and_open:
                raise _complaint(path, torn[-1]) from error
            continue
        if torn and not isinstance(event, Resumed | RolloutStarted):
            raise _complaint(path, torn[0]) from torn[0].error
        torn.clear()
        events.append(event)
    # Only the last line can be anything; those before were torn by processes that tried to go on.
    if foreign := next((each for each in torn[:-1] if not _is_torn(each.line)), None):
        raise _complaint(path, foreign) from foreign.error
    return tuple(events)


class _Unreadable(NamedTuple):
    """A line that is no event."""

    number: int
    """Counted from 1."""
    line: bytes
    error: ValidationError


def _complaint(path: Path, found: _Unreadable) -> RunFormatError:
    number, line, error = found
    version = _schema_version(line)
    if number == 1 and version not in (None, SCHEMA_VERSION):
        return RunFormatError(
            f"{path} has schema version {version}, and this Kernelwright reads version {SCHEMA_VERSION}. "
            "Read it with the version that wrote it."
        )
    return RunFormatError(f"Line {number} of {path} is not an event of a transcript: {first_complaint(error)}")


def first_complaint(error: ValidationError) -> str:
    """The first complaint of a validation, short."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{first['msg']} (at {where})" if where else first["msg"]


def _is_torn(line: bytes) -> bool:
    """Whether it is the beginning of an event, or what a file system fills in after a power failure."""
    return line.startswith(b"{") or not line.strip(b"\0")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _schema_version(line: bytes) -> object:
    value = json.loads(line) if _is_json(line) else None
    return value.get("schema_version") if isinstance(value, dict) else None
