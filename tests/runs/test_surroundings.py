"""Tests of what is recorded about the software around a run."""

import platform
from pathlib import Path

from runs.surroundings import commit, versions

HASH = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def make_checkout(path: Path, head: str) -> Path:
    (path / ".git").mkdir(parents=True)
    (path / ".git" / "HEAD").write_text(head)
    return path


def test_commit_of_a_branch(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path, "ref: refs/heads/main\n")
    (checkout / ".git" / "refs" / "heads").mkdir(parents=True)
    (checkout / ".git" / "refs" / "heads" / "main").write_text(f"{HASH}\n")
    assert commit(checkout) == HASH


def test_commit_of_a_packed_branch(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path, "ref: refs/heads/main\n")
    packed = f"# pack-refs with: peeled fully-peeled sorted\n{OTHER} refs/heads/maintenance\n{HASH} refs/heads/main\n"
    (checkout / ".git" / "packed-refs").write_text(packed)
    assert commit(checkout) == HASH


def test_commit_of_a_detached_head(tmp_path: Path) -> None:
    assert commit(make_checkout(tmp_path, f"{HASH}\n")) == HASH


def test_commit_of_a_linked_worktree(tmp_path: Path) -> None:
    main = make_checkout(tmp_path / "main", f"{OTHER}\n")
    (main / ".git" / "refs" / "heads").mkdir(parents=True)
    (main / ".git" / "refs" / "heads" / "side").write_text(f"{HASH}\n")
    own = main / ".git" / "worktrees" / "side"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    (own / "commondir").write_text("../..\n")
    (tmp_path / "side").mkdir()
    (tmp_path / "side" / ".git").write_text(f"gitdir: {own}\n")
    assert commit(tmp_path / "side") == HASH


def test_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert commit(tmp_path) is None


def test_versions_name_python_and_torch() -> None:
    found = versions()
    assert found["python"] == platform.python_version()
    assert "torch" in found
