"""Namespaces around workers: nothing crosses them, and where they cannot be had the other tiers stay."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiers import needs_bubblewrap, without_bubblewrap
from worker_bench import Bench, bench_of, started_bench

from tools import confinement
from tools.confinement import import_folders, tier
from tools.server_process import ServerProcess
from tools.worker import sandbox


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What was found out about bubblewrap on another path is not kept."""
    confinement.lacks_bubblewrap.cache_clear()
    yield
    confinement.lacks_bubblewrap.cache_clear()


@pytest.fixture(
    params=[
        pytest.param("as_it_is", marks=needs_bubblewrap, id="namespaces"),
        pytest.param("without_namespaces", id="kernel"),
    ]
)
def bench(request: pytest.FixtureRequest) -> Bench:
    """Workers with bubblewrap and without."""
    return bench_of(request.getfixturevalue(request.param))


def told(bench: Bench, code: str) -> str:
    """What an expression evaluates to in a worker."""
    text = f"import os, pathlib\nraise RuntimeError({code})\n"
    return bench.fault(text).message.removeprefix("RuntimeError: ").partition(" (candidate.py")[0]


def fake_bubblewrap(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_tier_says_whether_bubblewrap_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "" if confinement.lacks_bubblewrap(gpu=False) else "+bubblewrap"
    kernel = "".join(f"+{part}" for part in sandbox.parts()[1:])
    assert tier(gpu=False) == f"process{expected}{kernel}"
    fake_bubblewrap(tmp_path, "echo 'No permissions to create a new namespace' >&2; exit 1", monkeypatch)
    confinement.lacks_bubblewrap.cache_clear()
    assert tier(gpu=False) == f"process{kernel}"


def test_a_bubblewrap_that_is_forbidden_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ubuntu's AppArmor lets bwrap be installed and not work."""
    fake_bubblewrap(tmp_path, "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", monkeypatch)
    assert "setting up uid map: Permission denied" in confinement.lacks_bubblewrap(gpu=False)
    assert "apparmor_restrict_unprivileged_userns" in confinement.lacks_bubblewrap(gpu=False)


def test_a_bubblewrap_that_is_missing_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install bubblewrap" in confinement.lacks_bubblewrap(gpu=False)


def test_without_bubblewrap_the_kernels_rules_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    command = confinement.for_compiler(tmp_path, read=[]).command(["g++"])
    assert command == confinement.for_compiler(tmp_path, read=[]).script(["g++"])
    assert str(Path(sandbox.__file__)) in command


LEAVES = """
import os, pathlib
for place in (PLACES):
    try:
        pathlib.Path(place, "message").write_text("from an earlier worker")
    except OSError:
        pass
raise RuntimeError("left")
"""


def test_nothing_reaches_a_later_worker(bench: Bench) -> None:
    """On the cuda target all of /dev/shm was once open to every worker, one after the other."""
    cache = bench.server._process.cache
    folders = (bench.server._process.root, cache / "inductor", cache / "triton", cache / "builds")
    places = [*map(str, folders), "/dev/shm", "/tmp", "/dev", "/", "/run", "/var/tmp", "/proc/self/cwd/.."]
    listed = ", ".join(map(repr, places))
    bench.fault(LEAVES.replace("PLACES", listed))
    seen = told(bench, f"[place for place in ({listed}) if pathlib.Path(place, 'message').exists()]")
    assert seen == "[]"
    assert not any(Path(place, "message").exists() for place in places)


@needs_bubblewrap
def test_the_private_places_are_bounded(as_it_is: ServerProcess) -> None:
    bench = bench_of(as_it_is)
    sizes = told(bench, "[os.statvfs(p).f_blocks * os.statvfs(p).f_frsize for p in (os.getcwd(), '/dev/shm')]")
    assert sizes == str([bench.server.budget.disk_bytes] * 2)


@needs_bubblewrap
def test_only_the_workers_own_surroundings_are_there(as_it_is: ServerProcess) -> None:
    bench = bench_of(as_it_is)
    assert told(bench, "pathlib.Path('/etc').is_dir(), pathlib.Path('/home').exists()") == "(True, False)"
    status = told(bench, "pathlib.Path('/proc/self/status').read_text()")
    assert "CapEff:\t0000000000000000" in status
    assert "CapPrm:\t0000000000000000" in status
    for kind in ("net", "pid", "ipc", "uts", "mnt", "user"):
        own = told(bench, f"os.readlink('/proc/self/ns/{kind}')")
        assert own != str(Path(f"/proc/self/ns/{kind}").readlink())


@pytest.mark.parametrize("tier", ["as it is", "kernel"])
def test_packages_of_the_home_are_found_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    """A worker's Python leaves out the folder of `pip install --user`, where PyTorch itself may lie."""
    folder = tmp_path / "home" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "only_for_this_user.py").write_text("VALUE = 41 + 1\n")
    monkeypatch.syspath_prepend(str(folder))
    if tier == "kernel":
        monkeypatch.setattr(confinement, "lacks_bubblewrap", without_bubblewrap)
    bench = started_bench()
    try:
        assert told(bench, "__import__('only_for_this_user').VALUE") == "42"
    finally:
        bench.server.close()


def test_pytorch_is_among_what_workers_import_whatever_its_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch")
    assert import_folders()[0] == str(tmp_path)
