"""Reads a foreign file: finds its format by what is in it, then its conversations."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from runs.config import ImportedFrom
from runs.importing.atif import is_atif, read_atif
from runs.importing.chat import read_chat
from runs.importing.document import ForeignFormatError, parse_json
from runs.importing.draft import Draft
from runs.importing.seed import looks_like_seed, read_seed
from tasks.errors import UsageError


class Format(StrEnum):
    """The formats that can be imported."""

    SEED = "seed"
    CHAT = "chat"
    ATIF = "atif"


_READERS: dict[Format, Callable[[str], list[Draft]]] = {
    Format.SEED: read_seed,
    Format.CHAT: read_chat,
    Format.ATIF: read_atif,
}


@dataclass(frozen=True)
class Source:
    """A foreign file that was read."""

    origin: ImportedFrom
    drafts: list[Draft]


def read_source(path: Path, wanted: Format | None) -> Source:
    """The conversations of a file, in a format or in the one that it has.

    Raises:
        UsageError: it cannot be read, or does not have the form it should have.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UsageError(f"{path} is no regular file, so it may never end; nothing was imported")
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); nothing was imported") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}); nothing was imported") from error
    try:
        chosen = wanted or _format_of(text)
        drafts = _READERS[chosen](text)
    except ForeignFormatError as error:
        raise UsageError(f"{path} cannot be imported: {error}. Nothing was written") from error
    # A file's name need not be UTF-8, and run.json must be.
    name = path.name.encode("utf-8", "replace").decode()
    return Source(ImportedFrom(file=name, sha256=sha256(content).hexdigest(), format=chosen.value), drafts)


def _format_of(text: str) -> Format:
    if looks_like_seed(text):
        return Format.SEED
    if not text.lstrip().startswith(("{", "[")):
        raise ForeignFormatError(
            "its format is none of those known: it begins neither with `reasoning`, as a seed does, nor as JSON"
        )
    first_line = text.lstrip().partition("\n")[0]
    try:
        value = parse_json(text)
    except ForeignFormatError:
        # One conversation a line is no JSON as a whole; if it is neither, its reader says what is wrong and where.
        return Format.ATIF if '"ATIF-' in first_line else Format.CHAT
    return Format.ATIF if is_atif(value) else Format.CHAT
