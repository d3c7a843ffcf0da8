"""Builds in the cache: each a folder with the library and its report, used only if it is what was written there."""

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tasks.record import Record
from tools.cache import IN_USE, Hold, hold, published
from tools.cache_tending import drop
from tools.results import Extension

LIBRARY = "extension.so"
_REPORT = "report.json"


class _Entry(Record):
    """What stands beside a library."""

    sha256: str
    """Of the library."""
    report: Extension


@dataclass(frozen=True)
class KeptBuild:
    """A build from the cache; while its hold lives, nobody takes it away."""

    library: Path
    report: Extension
    hold: Hold


def find_build(folder: Path) -> KeptBuild | None:
    """The build that was kept in a folder, or None.

    A damaged one is dropped, so that it is built anew: nothing of it was used. Whoever reads standard error is told,
    because a disk that changes files does so again.

    Raises:
        OSError: the folder cannot be read.
    """
    held = hold(folder)
    if held is None:
        return None
    try:
        entry = _Entry.model_validate(json.loads((folder / _REPORT).read_bytes()))
        if hashlib.sha256((folder / LIBRARY).read_bytes()).hexdigest() == entry.sha256:
            return KeptBuild(folder / LIBRARY, entry.report, held)
        cause = "it holds another library than was written there"
    except (FileNotFoundError, ValueError) as error:
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
    held.close()
    if drop(folder):
        print(f"kernelwright: the cached build {folder} was damaged ({cause}); it is built again.", file=sys.stderr)
    return None


def keep_build(folder: Path, library: bytes, report: Extension) -> KeptBuild | None:
    """Put a build into the cache. Where another process did so meanwhile, theirs stays and is given; None where that is
    gone or damaged.

    Raises:
        OSError: the folder cannot be written.
    """
    entry = _Entry(sha256=hashlib.sha256(library).hexdigest(), report=report)
    with published(folder) as work:
        (work / LIBRARY).write_bytes(library)
        (work / _REPORT).write_text(json.dumps(entry.model_dump(mode="json")))
        # Held before others can see it, or they could take it away before it was used once.
        held = hold(work)
    if held is not None and held.keeps(folder / IN_USE):
        return KeptBuild(folder / LIBRARY, report, held)
    return find_build(folder)


def copy_of(library: Path) -> int:
    """A descriptor of a nameless copy of a library, which whoever gets it may do with as it likes."""
    content = library.read_bytes()
    descriptor = os.memfd_create("kernelwright-extension", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
