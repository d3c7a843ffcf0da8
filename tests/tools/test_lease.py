"""One process measures at a time."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import ROOT

from tools.lease import lease

HOLDER = """
import sys, time
from tools.lease import lease
with lease("cpu", print):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))


def started_holder(seconds: float) -> "subprocess.Popen[str]":
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(seconds)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


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
