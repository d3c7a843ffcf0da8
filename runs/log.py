"""The writer of a transcript: an append-only log that is on the disk after every event."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from pydantic_core import PydanticSerializationError

from runs.events import EVENT, Stamped
from tasks.errors import UsageError

AnyEvent = TypeVar("AnyEvent", bound=Stamped)


class TranscriptLog:
    """Appends events to a new transcript. A context manager: leaving it closes the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed = False
        """True once a write failed: the last line may be torn, so nothing may follow it."""
        self._written = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb", buffering=0)
        except FileExistsError as error:
            raise UsageError(f"{path} exists already; a transcript is never written over.") from error
        except OSError as error:
            raise UsageError(f"{path} cannot be written ({error.strerror}). Choose another --out.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, event: AnyEvent) -> AnyEvent:
        """Write one event and return it with its sequence number."""
        stamped = event.model_copy(update={"sequence": self._written})
        line = memoryview(event_line(stamped))
        # Counted first: an interrupt between write and count must not give a number out twice.
        self._written += 1
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self.failed = True
            raise UsageError(
                f"The transcript {self.path} can no longer be written ({error.strerror}). It holds everything up to "
                f"event {stamped.sequence - 1}. Make room or choose another --out, and run again."
            ) from error
        return stamped


def event_line(event: Stamped) -> bytes:
    """An event as its line in a transcript."""
    try:
        text = event.model_dump_json()
    except PydanticSerializationError:
        # A model may write half of a surrogate pair, which UTF-8 has no bytes for.
        text = EVENT.validate_python(_without_surrogates(event.model_dump())).model_dump_json()
    return text.encode() + b"\n"


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value
