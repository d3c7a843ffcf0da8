"""A build from the cache is the one that was put there, or it is built again: damaged, dropped or emptied meanwhile."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_compilers import FakeCompilers
from processes import ROOT

from tasks.errors import HarnessError, UsageError
from tools import build, kept_builds, light_kit
from tools.build import Builder, BuiltExtension
from tools.cache_tending import clear, drop
from tools.candidate import Candidate
from tools.confinement import Confinement
from tools.inline_request import InlineRequest
from tools.kept_builds import KeptBuild, find_build, keep_build
from tools.results import Extension


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompilers:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    # Confined, the fakes could not write down how they were called.
    monkeypatch.setattr(Confinement, "command", lambda _, argv: argv)
    return FakeCompilers(tmp_path)


def built(compilers: FakeCompilers, source: str = "int f();") -> BuiltExtension:
    request = InlineRequest(name="conv", cpp_sources=(source,), functions={})
    return Builder(compilers.toolchain).build(request, Candidate("import torch\n"))


def test_a_build_of_other_light_headers_is_not_used(
    compilers: FakeCompilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are part of each library, so that what was mended in them would otherwise stay broken in the cache."""
    assert not built(compilers).report.cached
    assert built(compilers).report.cached
    changed = tmp_path / "light"
    shutil.copytree(ROOT / "tools" / "light", changed)
    (changed / "runtime.cpp").write_text("// Mended.\n")
    monkeypatch.setattr(light_kit, "_SOURCES", changed)
    light_kit.light_key.cache_clear()
    assert not built(compilers).report.cached
    light_kit.light_key.cache_clear()


@pytest.mark.parametrize(
    "damage", ["another library", "report gone", "library gone", "report torn", "report of another form"]
)
def test_a_damaged_build_is_built_again_and_somebody_is_told(
    compilers: FakeCompilers, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person was once asked to delete the folder, while every evaluation ended in a fault of the harness."""
    first = built(compilers)
    first.hold.close()
    folder = first.library.parent
    report = folder / "report.json"
    match damage:
        case "another library":
            first.library.write_bytes(b"something else")
        case "report gone":
            report.unlink()
        case "library gone":
            first.library.unlink()
        case "report torn":
            report.write_text(report.read_text()[:50])
        case _:
            report.write_text(json.dumps({**json.loads(report.read_text()), "report": {"label": "conv"}}))
    second = built(compilers)
    assert second.report.cached is False
    assert second.library == first.library
    assert second.library.read_bytes() == (compilers.folder / "empty.so").read_bytes()
    said = capsys.readouterr()
    assert said.out == ""
    assert f"the cached build {folder} was damaged (" in said.err and said.err.count("\n") == 1
    assert built(compilers).report.cached is True


def test_a_damaged_build_that_another_holds_is_our_fault(compilers: FakeCompilers) -> None:
    """It can't be taken away under who may be loading it, and must not be used."""
    first = built(compilers)
    first.library.write_bytes(b"something else")
    with pytest.raises(HarnessError, match=r"was gone or damaged 3 times .* see whether its disk is sound"):
        built(compilers)


def test_a_build_is_held_as_long_as_it_is_known(compilers: FakeCompilers, tmp_path: Path) -> None:
    first = built(compilers)
    again = built(compilers)
    assert clear(tmp_path / "cache").entries == 0
    first.hold.close()
    assert not drop(again.library.parent), "who took it from the cache holds it as well"
    again.hold.close()
    assert drop(again.library.parent)


def test_a_build_that_was_taken_away_before_it_was_held_is_built_again(
    compilers: FakeCompilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, folders = kept_builds.keep_build, []

    def keep_theirs_and_lose_it(folder: Path, library: bytes, report: Extension) -> KeptBuild | None:
        folders.append(folder)
        kept = keep(folder, library, report)
        if len(folders) > 1:
            return kept
        assert kept is not None
        kept.hold.close()
        assert drop(folder)
        return find_build(folder)

    monkeypatch.setattr(build, "keep_build", keep_theirs_and_lose_it)
    made = built(compilers)
    assert made.library.is_file()
    assert len(folders) == 2
    assert made.report.cached is False


def test_what_was_just_built_stays_even_where_nothing_may(
    compilers: FakeCompilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE_BYTES", "0")
    first = built(compilers)
    assert first.library.is_file()
    first.hold.close()
    os.utime(tmp_path / "cache" / "tended", (1000.0, 1000.0))
    second = built(compilers, "int g();")
    assert second.library.is_file()
    assert not first.library.exists()


@pytest.mark.parametrize("text", ["10GB", "-1", "1e9", "ten", "１０"])
def test_a_bound_that_is_no_number_of_bytes(
    compilers: FakeCompilers, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE_BYTES", text)
    with pytest.raises(UsageError, match=r"KERNELWRIGHT_CACHE_BYTES is .* write digits only, such as 10000000000"):
        built(compilers)


BUILD = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from fake_compilers import FakeCompilers
from tools.build import Builder
from tools.candidate import Candidate
from tools.confinement import Confinement
from tools.inline_request import InlineRequest
Confinement.command = lambda _, argv: argv
builder = Builder(FakeCompilers(Path(sys.argv[1])).toolchain)
request = InlineRequest(name="conv", cpp_sources=("int f();",), functions={})
for _ in range(15):
    made = builder.build(request, Candidate("import torch\\n"))
    assert made.library.read_bytes() == (Path(sys.argv[1]) / "empty.so").read_bytes()
    made.hold.close()
"""


def test_building_goes_on_while_the_cache_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes build the same again and again while a third empties the cache under them."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    others = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        folders = [str(ROOT), str(Path(__file__).parent)]
        argv = [sys.executable, "-c", BUILD, str(tmp_path / name), *folders]
        others.append(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True))
    emptied = 0
    try:
        while any(process.poll() is None for process in others):
            emptied += clear(tmp_path / "cache").entries
        assert [process.communicate()[1] for process in others] == ["", ""]
        assert [process.returncode for process in others] == [0, 0]
        assert emptied > 1
    finally:
        for process in others:
            process.kill()
            with contextlib.suppress(ValueError):
                process.communicate()


def test_of_two_who_built_the_same_both_have_the_first_ones(compilers: FakeCompilers, tmp_path: Path) -> None:
    report = built(compilers).report
    ours = keep_build(tmp_path / "key", b"first", report)
    theirs = keep_build(tmp_path / "key", b"second", report)
    assert ours is not None and theirs is not None
    assert theirs.library.read_bytes() == b"first"
    ours.hold.close()
    assert not drop(tmp_path / "key"), "the second holds it too"
    theirs.hold.close()
    assert drop(tmp_path / "key")
