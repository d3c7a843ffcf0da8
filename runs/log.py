"""The writer of a transcript: an append-only log that is on the disk after every event.

What is on the disk is never changed. If a process dies while it writes a line, the line stays as it is, torn; the next
one ends it and goes on with `resumed`, and readers leave out what stands torn before that.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

from runs.events import Event, Stamped
from runs.lines import line_of
from runs.reading import read_transcript
from tasks.errors import StorageError, UsageError

AnyEvent = TypeVar("AnyEvent", bound=Stamped)


class TranscriptLog:
    """Appends events to a transcript. A context manager: leaving it closes the file, and lets others write to it."""

    def __init__(self, path: Path, history: Sequence[Event] = ()) -> None:
        """Open a new transcript, or one that is to go on; a file without one whole event counts as new.

        Args:
            path: of the transcript.
            history: of one that is to go on, all of its events, as they were read before.

        Raises:
            UsageError: there is a transcript already, it is not that of `history` any more, another process is writing
                it, or the path cannot be written.
        """
        self.path = path
        self.failed = False
        """True once a write did not come to its end: the last line may be torn, so this log lets nothing follow it."""
        self._written = history[-1].sequence + 1 if history else 0
        self._file = _open(path)
        try:
            _lock(self._file, path)
            self._require(history)
            self._torn = _ends_torn(self._file)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, event: AnyEvent) -> AnyEvent:
        """Write one event and return it with its sequence number.

        Raises:
            StorageError: it could not be written, or an earlier one could not.
        """
        if self.failed:
            raise StorageError(f"The transcript {self.path} is not written any more, because a write to it failed.")
        stamped = event.model_copy(update={"sequence": self._written})
        line = line_of(stamped)
        rest = memoryview(b"\n" + line if self._torn else line)
        self.failed = True
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            self._written += 1
            # An interruption from here on leaves a whole line, which others may follow.
            self._torn = self.failed = False
            os.fsync(self._file.fileno())
        except OSError as error:
            self.failed = True
            raise StorageError(
                f"The transcript {self.path} can no longer be written ({error.strerror}). It holds everything before "
                f"event {stamped.sequence}. Make room, or make it writable again; then `kernelwright resume` goes on."
            ) from error
        return stamped

    def _require(self, history: Sequence[Event]) -> None:
        found = read_transcript(self.path)
        if found and not history:
            raise UsageError(f"{self.path} exists already; a transcript is never written over.")
        if [event.sequence for event in found] != [event.sequence for event in history]:
            raise UsageError(f"Another process has written to {self.path} meanwhile. Resume the run again.")


def _open(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+b", buffering=0)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}). Make it writable, or choose another directory with --out."
        ) from error


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep others from writing to a transcript; the kernel frees it when this process dies."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"Another process is writing {path}: the rollout still goes on. Let it end first.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be locked ({error.strerror}). Choose a directory on another disk.") from error


def _ends_torn(file: BinaryIO) -> bool:
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"
