"""Files in folders that untrusted programs have written to are never read or written through what they left there."""

import os
from pathlib import Path

import pytest

from tools.candidate_fault import printed_end
from tools.folders import read_regular, remove_folder, write_new
from tools.usage import Budget, usage


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-secret")
    (tmp_path / "link").symlink_to("key")
    with pytest.raises(OSError):
        read_regular(tmp_path / "link")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "link", "text")
    assert (tmp_path / "key").read_text() == "sk-secret"


def test_a_link_to_nothing_is_not_followed_either(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("new")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "link", "text")
    assert not (tmp_path / "new").exists()


@pytest.mark.timeout(10)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        read_regular(tmp_path / "pipe")


def test_a_file_without_content_is_not_read_into_memory(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="more than 100 bytes"):
        read_regular(tmp_path / "sparse", limit=100)
    assert read_regular(tmp_path / "sparse", last=3) == b"\0\0\0"


def test_what_a_candidate_printed_is_not_read_through_a_link(tmp_path: Path) -> None:
    """Of /proc/self/environ, say, which the judge can read and a candidate cannot."""
    (tmp_path / "key").write_text("sk-secret")
    (tmp_path / "printed.txt").symlink_to("key")
    assert printed_end(tmp_path) == ""


def test_deep_folders_count_and_are_removed(tmp_path: Path) -> None:
    """Deeper than Python's recursion goes, and than a path can name."""
    home = Path.cwd()
    top = tmp_path / "top"
    top.mkdir()
    try:
        os.chdir(top)
        for _ in range(2500):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(home)
    budget = Budget(memory_bytes=1 << 40)
    assert usage(os.getpgrp(), top, budget).disk_bytes > budget.disk_bytes
    remove_folder(top)
    assert not top.exists()
