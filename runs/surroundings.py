"""What a run's record says about the software around it: versions, and the commit of the checkout."""

import importlib.metadata
import platform
from pathlib import Path

PACKAGES = ("kernelwright", "torch", "openai", "pydantic")

_CHECKOUT = Path(__file__).resolve().parent.parent


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that decide a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(checkout: Path = _CHECKOUT) -> str | None:
    """The commit a checkout stands at, read from git's own files; None where there is no checkout."""
    try:
        folder = _git_folder(checkout / ".git")
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        shared = _common_folder(folder)
        return _loose(shared, head[5:]) or _packed(shared, head[5:])
    except OSError:
        return None


def _git_folder(dot_git: Path) -> Path:
    """In a linked worktree, `.git` is a file that names the folder."""
    if dot_git.is_dir():
        return dot_git
    named = Path(dot_git.read_text().removeprefix("gitdir:").strip())
    return dot_git.parent / named


def _common_folder(folder: Path) -> Path:
    """Where a linked worktree's branches are: in the main checkout's folder."""
    common = folder / "commondir"
    return folder / common.read_text().strip() if common.is_file() else folder


def _loose(folder: Path, ref: str) -> str | None:
    path = folder / ref
    return path.read_text().strip() if path.is_file() else None


def _packed(folder: Path, ref: str) -> str | None:
    lines = (line.split() for line in (folder / "packed-refs").read_text().splitlines())
    return next((line[0] for line in lines if line[1:] == [ref]), None)
