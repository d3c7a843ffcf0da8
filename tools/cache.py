"""Where built extensions, precompiled headers and PyTorch's own compile caches are kept between processes."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.errors import UsageError
from tools.folders import remove_folder


def cache_root() -> Path:
    """`KERNELWRIGHT_CACHE`, else `kernelwright` in `XDG_CACHE_HOME`, else in `~/.cache`; made where it is missing.

    Raises:
        UsageError: the folder cannot be made or written.
    """
    named = os.environ.get("KERNELWRIGHT_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    root = Path(named) if named else (Path(shared) if shared else Path.home() / ".cache") / "kernelwright"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"the cache folder {root} cannot be made ({error}); set KERNELWRIGHT_CACHE.") from error
    if not os.access(root, os.W_OK):
        raise UsageError(f"the cache folder {root} cannot be written; set KERNELWRIGHT_CACHE to one that can.")
    return root.resolve()


@contextmanager
def published(final: Path) -> Iterator[Path]:
    """A private folder to build in; it takes its final name at once when the block ends well, else it goes away.

    When another process has published the same content meanwhile, theirs stays and ours is dropped.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=final.parent))
    try:
        yield work
        try:
            work.rename(final)
        except OSError:
            if not final.is_dir():
                raise
    finally:
        remove_folder(work)
