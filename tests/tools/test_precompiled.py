"""The precompiled header: one for each set of flags, made once, and none where it cannot be had."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fake_compilers import FakeCompilers

from tools import precompiled
from tools.confinement import Confinement
from tools.precompiled import precompiled_prelude


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompilers:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    # Confined, the fakes could not write down how they were called.
    monkeypatch.setattr(Confinement, "command", lambda _, argv: argv)
    return FakeCompilers(tmp_path)


def kept(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "precompiled").iterdir())


def test_it_is_made_once_for_its_flags(compilers: FakeCompilers, tmp_path: Path) -> None:
    first = precompiled_prelude(compilers.toolchain, ["-O3"])
    assert first is not None
    assert first.read_text() == "#include <torch/extension.h>\n"
    assert first.with_name("prelude.h.gch").is_file()
    assert precompiled_prelude(compilers.toolchain, ["-O3"]) == first
    assert len(compilers.calls("g++")) == 1
    other = precompiled_prelude(compilers.toolchain, ["-O3", "-fopenmp"])
    assert other is not None
    assert other.parent != first.parent
    assert len(kept(tmp_path)) == 2


def test_another_compiler_or_pytorch_has_its_own(compilers: FakeCompilers) -> None:
    chain = compilers.toolchain
    chains = [chain, replace(chain, host_version="g++ 9"), replace(chain, torch_version="2.11")]
    assert len({precompiled_prelude(chain, []) for chain in chains}) == 3


def test_flags_that_do_not_compile_leave_nothing(compilers: FakeCompilers, tmp_path: Path) -> None:
    """A folder without its .gch would be taken for the header for ever, and every build would be slow."""
    assert precompiled_prelude(compilers.toolchain, ["-fail"]) is None
    assert kept(tmp_path) == []


def test_a_compiler_that_is_not_gcc_gets_none(compilers: FakeCompilers, tmp_path: Path) -> None:
    clang = replace(compilers.toolchain, host_compiler="/usr/bin/clang++", host_version="Debian clang version 14.0.6")
    assert precompiled_prelude(clang, []) is None
    assert not (tmp_path / "cache" / "precompiled").exists()


def test_the_least_recently_used_one_goes(
    compilers: FakeCompilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "KEPT", 2)
    made = {}
    for age, flag in enumerate(("-O1", "-O2")):
        path = precompiled_prelude(compilers.toolchain, [flag])
        assert path is not None
        os.utime(path.parent, (1000.0 + age, 1000.0 + age))
        made[flag] = path
    assert precompiled_prelude(compilers.toolchain, ["-O1"]) == made["-O1"], "used again, now the newest"
    assert precompiled_prelude(compilers.toolchain, ["-O3"]) is not None
    assert made["-O1"].is_file()
    assert not made["-O2"].exists()
    assert len(kept(tmp_path)) == 2
