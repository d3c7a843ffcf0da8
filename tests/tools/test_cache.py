"""The cache folder, and that only finished work is ever seen in it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import ROOT

from tasks.errors import UsageError
from tools.cache import cache_root, published


def test_the_folders_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("KERNELWRIGHT_CACHE", raising=False)
    assert cache_root() == tmp_path / "home" / ".cache" / "kernelwright"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    assert cache_root() == tmp_path / "shared" / "kernelwright"
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "named"))
    assert cache_root() == tmp_path / "named"
    assert (tmp_path / "named").stat().st_mode & 0o077 == 0, "nobody else may put a library there"


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match=r"cannot be made .* set KERNELWRIGHT_CACHE"):
        cache_root()


def test_finished_work_gets_its_name(tmp_path: Path) -> None:
    final = tmp_path / "builds" / "key"
    with published(final) as work:
        (work / "library").write_text("text")
        assert not final.exists()
    assert (final / "library").read_text() == "text"
    assert list(final.parent.iterdir()) == [final]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), published(tmp_path / "key") as work:
        (work / "library").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_publishes_nothing(tmp_path: Path) -> None:
    """R23."""
    code = (
        "import os, signal, sys; from pathlib import Path; from tools.cache import published\n"
        "with published(Path(sys.argv[1])) as work:\n"
        "    (work / 'library').touch(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "key")], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "key").exists()
    with published(tmp_path / "key") as work:
        assert list(work.iterdir()) == [], "the leftover is not built upon"
    assert (tmp_path / "key").is_dir()


def test_of_two_publishers_the_first_stays(tmp_path: Path) -> None:
    with published(tmp_path / "key") as late:
        with published(tmp_path / "key") as early:
            assert early != late
            (early / "by").write_text("early")
        (late / "by").write_text("late")
    assert (tmp_path / "key" / "by").read_text() == "early"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o500)
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(folder))
    with pytest.raises(UsageError, match="cannot be written"):
        cache_root()
