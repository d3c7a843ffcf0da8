"""The command `cache` says what is kept, and empties it without taking anything from a running process."""

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tools.cache import hold, published
from tools.commands import register


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(root))
    monkeypatch.setenv("KERNELWRIGHT_CACHE_BYTES", "5000000")
    for number in range(3):
        with published(root / "builds" / f"key{number}") as work:
            (work / "extension.so").write_bytes(os.urandom(100_000))
    return root


def asked(*arguments: str) -> str:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["cache", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_it_says_what_is_kept_and_where(root: Path) -> None:
    told = asked()
    (builds,) = (line for line in told.splitlines() if "extensions that candidates built" in line)
    assert [cell.strip() for cell in builds.split("│")][3:5] == ["3", "0"]
    assert f"of at most 5 MB (KERNELWRIGHT_CACHE_BYTES), in {root}" in told


def test_as_json(root: Path) -> None:
    held = hold(root / "builds" / "key1")
    assert held is not None
    told = json.loads(asked("--json"))
    assert (told["root"], told["limit_bytes"], told["leftovers"]) == (str(root), 5_000_000, 0)
    builds = {part["part"]: part for part in told["parts"]}["builds"]
    assert (builds["entries"], builds["in_use"]) == (3, 1)
    assert 300_000 <= builds["size_bytes"] == told["size_bytes"] < 360_000
    assert 0 <= builds["least_recently_used_s"] < 600
    held.close()


def test_it_empties_the_cache_but_for_what_is_in_use(root: Path) -> None:
    held = hold(root / "builds" / "key1")
    assert held is not None
    told = json.loads(asked("--clear", "--json"))
    assert told["dropped_entries"] == 2
    assert 200_000 <= told["dropped_bytes"] < 240_000
    assert [path.name for path in (root / "builds").iterdir()] == ["key1"]
    assert "what is in use stays" in asked("--clear")
    held.close()
    assert json.loads(asked("--clear", "--json"))["size_bytes"] == 0


def test_an_empty_cache(root: Path) -> None:
    asked("--clear")
    assert f"0 bytes of at most 5 MB (KERNELWRIGHT_CACHE_BYTES), in {root}" in asked()
