"""One process measures at a time on a device, whoever it belongs to; on the host none builds beside it."""

import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_driver import build_fake_driver
from processes import ROOT

from tasks.errors import UsageError
from tools.lease import building, lease, no_builds

HOLDER = """
import sys, time
from tools.lease import building, lease, no_builds
say = lambda message: print(message, flush=True)
others = {"building": building, "no_builds": lambda: no_builds(say)}
with others.get(sys.argv[1], lambda: lease(sys.argv[1], say))():
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""

MAKES_LEASES = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tools.lease import lease
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
with lease("cuda:3", print):
    print("held", flush=True)
    time.sleep(0.5)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELWRIGHT_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


def started_holder(seconds: float, what: str = "cpu", **environment: str) -> "subprocess.Popen[str]":
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, what, str(seconds)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.fixture(scope="module")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def long_holder() -> Iterator["subprocess.Popen[str]"]:
    with started_holder(60.0) as holder:
        yield holder
        holder.kill()


def test_a_free_lease_is_taken_without_a_word() -> None:
    said: list[str] = []
    with lease("cpu", said.append):
        pass
    with lease("cpu", said.append):
        pass
    assert said == []


def test_a_second_process_waits_and_says_so() -> None:
    said: list[str] = []
    started = time.monotonic()
    with started_holder(0.5) as holder:
        with lease("cpu", said.append):
            waited = time.monotonic() - started
        assert holder.wait() == 0
    assert said == ["waiting: another process is measuring on cpu"]
    assert waited > 0.4


def test_it_is_free_when_its_holder_is_killed(long_holder: "subprocess.Popen[str]") -> None:
    said: list[str] = []

    def kill(text: str) -> None:
        said.append(text)
        long_holder.kill()

    with lease("cpu", kill):
        assert len(said) == 1


def test_another_device_is_another_lease(long_holder: "subprocess.Popen[str]") -> None:
    said: list[str] = []
    with lease("cuda:1", said.append):
        assert long_holder.poll() is None
    assert said == []


def test_it_is_free_after_an_error_in_the_block() -> None:
    said: list[str] = []
    with pytest.raises(RuntimeError), lease("cpu", said.append):
        raise RuntimeError
    with lease("cpu", said.append):
        assert said == []


def test_who_has_a_cache_of_their_own_shares_the_lease(tmp_path: Path) -> None:
    """Leases once lay in the cache, so two users of a machine measured on one GPU at the same time."""
    said: list[str] = []
    with started_holder(0.3, KERNELWRIGHT_CACHE=str(tmp_path / "theirs")), lease("cpu", said.append):
        assert len(said) == 1


@pytest.mark.parametrize(("theirs", "shared"), [("1", True), ("1,0", True), ("0", False), ("", False)])
def test_a_gpu_is_the_same_whatever_number_it_has(theirs: str, shared: bool, fake_driver: Path) -> None:
    """CUDA_VISIBLE_DEVICES renumbers GPUs: the first one of two processes may be the same, or not."""
    library = {"LD_LIBRARY_PATH": str(fake_driver)}
    with started_holder(1.0, "cuda", CUDA_VISIBLE_DEVICES=theirs, **library):
        argv = [sys.executable, "-c", HOLDER, "cuda", "0"]
        environment = {**os.environ, **library, "CUDA_VISIBLE_DEVICES": "1"}
        done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == ("waiting: another process is measuring on cuda\n" if shared else "") + "held\n"


def test_all_users_may_make_and_take_leases_whatever_their_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with lease("cuda:3", print):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / "cuda-3").stat().st_mode) == 0o444


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_another_user_takes_turns_with_the_one_who_made_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leases are nobody's; whoever comes later can neither write to them nor has to."""
    nobody = 65534
    # Not below pytest's folder, which is its user's alone.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        monkeypatch.setenv("KERNELWRIGHT_LEASES", f"{name}/leases")
        argv = [sys.executable, "-c", MAKES_LEASES, str(ROOT), str(nobody)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            said: list[str] = []
            with lease("cuda:3", said.append):
                assert holder.wait() == 0
        assert (Path(name) / "leases" / "cuda-3").stat().st_uid == nobody
    assert said == ["waiting: another process is measuring on cuda:3"]


def test_a_link_in_the_place_of_a_lease_is_refused(folder: Path, tmp_path: Path) -> None:
    with lease("cpu", print):
        pass
    (folder / "cpu").unlink()
    (folder / "cpu").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"the lease .*/cpu cannot be opened"), lease("cpu", print):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_is_none_is_refused(folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(UsageError, match="the folder of leases, is no folder; remove it"), lease("cpu", print):
        pass


def test_a_lease_that_was_removed_while_somebody_waited_is_taken_anew(folder: Path) -> None:
    """Otherwise two would hold the same lease: one the removed file, one the new file."""
    with started_holder(60.0) as first:

        def remove(_: str) -> None:
            (folder / "cpu").unlink()
            (folder / "cpu").touch()
            first.kill()

        with lease("cpu", remove):
            argv = [sys.executable, "-c", HOLDER, "cpu", "0"]
            third = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            assert third.stdout is not None
            said = third.stdout.readline()
        assert said == "waiting: another process is measuring on cpu\n"
        third.communicate()


def test_builds_go_side_by_side() -> None:
    started = time.monotonic()
    with started_holder(60.0, "building") as other:
        with building():
            assert other.poll() is None
        other.kill()
    assert time.monotonic() - started < 30


def test_a_host_measurement_waits_for_builds_and_says_so() -> None:
    said: list[str] = []
    with started_holder(0.4, "building") as holder:
        started = time.monotonic()
        with no_builds(said.append):
            waited = time.monotonic() - started
        assert holder.wait() == 0
    assert said == ["waiting: other processes are building"]
    assert waited > 0.3


def test_builds_wait_for_a_host_measurement() -> None:
    with started_holder(0.4, "no_builds") as holder:
        started = time.monotonic()
        with building():
            waited = time.monotonic() - started
        assert holder.wait() == 0
    assert waited > 0.3


def test_a_stream_of_builds_does_not_keep_a_measurement_waiting() -> None:
    """Each build here outlasts the start of the next one; without a turn the lock would never be free."""
    stream = f"""
import sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from tools.lease import building
def build():
    while True:
        with building():
            time.sleep(0.2)
for offset in range(3):
    threading.Thread(target=build, daemon=True).start()
    time.sleep(0.07)
print("streaming", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", stream], stdout=subprocess.PIPE, text=True) as builds:
        assert builds.stdout is not None and builds.stdout.readline() == "streaming\n"
        started = time.monotonic()
        for _ in range(3):
            with no_builds(lambda _: None):
                pass
        assert time.monotonic() - started < 20
        assert builds.poll() is None
        builds.kill()
