"""A session holds its device until nothing of its own works there: what it has killed is awaited, but not at once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch
from judging import CONVOLUTION, task_of
from worker_bench import GOOD, started_bench

from tasks.spec import Target
from tools.session import Session
from tools.subject import Limits, Subject

GIB = 1 << 30


class Loud:
    """A subject that notes what is done to it."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def kill(self) -> None:
        self._log.append("killed")

    def close(self) -> None:
        self._log.append("awaited")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to the lease, and by `Loud`, in its order."""
    log: list[str] = []

    @contextlib.contextmanager
    def lease(_device: str, _waiting: object) -> Iterator[None]:
        log.append("held")
        yield
        log.append("given back")

    monkeypatch.setattr("tools.session.lease", lease)
    return log


def session_on(device: str, folder: Path) -> Session:
    session = Session(task_of(folder, CONVOLUTION), Target.CUDA, Limits(), print)
    vars(session)["device"] = device
    return session


def subject(log: list[str]) -> Subject:
    return cast("Subject", Loud(log))


def gpu_with(free_gib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_gib * GIB, 100 * GIB))


def test_a_lease_within_a_lease_is_the_same_one(log: list[str], tmp_path: Path) -> None:
    session = session_on("cpu", tmp_path)
    with session.device_lease(), session.device_lease():
        pass
    with session.device_lease():
        pass
    assert log == ["held", "given back", "held", "given back"]


def test_after_a_block_that_failed_the_lease_is_taken_anew(log: list[str], tmp_path: Path) -> None:
    session = session_on("cpu", tmp_path)
    with contextlib.suppress(ValueError), session.device_lease():
        raise ValueError
    log.clear()
    with session.device_lease():
        pass
    assert log == ["held", "given back"]


def test_on_a_gpu_who_was_killed_is_awaited_before_something_is_measured(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_on("cuda", tmp_path)
    gpu_with(75, monkeypatch)
    with session.device_lease():
        session.end(subject(log))
        log.append("another gets ready")
        session.settle()
        log.append("it is measured")
    assert log == ["held", "killed", "another gets ready", "awaited", "it is measured", "given back"]


def test_on_a_gpu_who_was_killed_is_gone_before_the_lease_is(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_on("cuda", tmp_path)
    gpu_with(75, monkeypatch)
    with session.device_lease():
        session.end(subject(log))
    assert log == ["held", "killed", "awaited", "given back"]


def test_on_a_gpu_with_much_memory_in_use_everybody_is_awaited_at_once(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker could lack what the last one still holds."""
    session = session_on("cuda", tmp_path)
    gpu_with(74, monkeypatch)
    with session.device_lease():
        session.end(subject(log))
        log.append("another gets ready")
    assert log == ["held", "killed", "awaited", "another gets ready", "given back"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_a_lease_and_on_the_host_everybody_is_awaited_at_once(
    device: str, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_on(device, tmp_path)
    gpu_with(100, monkeypatch)
    with session.device_lease() if device == "cpu" else contextlib.nullcontext():
        session.end(subject(log))
        log.append("another gets ready")
    assert [entry for entry in log if entry in ("awaited", "another gets ready")] == ["awaited", "another gets ready"]


def test_a_killed_worker_is_reaped_once() -> None:
    bench = started_bench()
    try:
        worker = bench.server.spawn(1 << 20)
        bench.load(worker, GOOD)
        worker.kill()
        assert worker.scratch.exists()
        worker.close()
        worker.close()
        assert not worker.scratch.exists()
        assert bench.server.ended(worker.number)
    finally:
        bench.server.close()
