"""Workers that stand before there is a candidate serve one as others do, and leave nothing behind."""

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from judging import CONVOLUTION, task_of
from processes import descendants, within
from worker_bench import GOOD, MEMORY_BYTES, Bench, started_bench

from tasks.spec import Target
from tools.ahead import Ahead
from tools.session import Session
from tools.subject import Limits
from tools.workers import Worker


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = started_bench()
    # The server's own processes are all there once it has served.
    with bench.worker():
        pass
    yield bench
    bench.server.close()


@pytest.fixture
def ahead(bench: Bench) -> Iterator[Ahead]:
    ahead = Ahead(bench.server.spawn, "cpu")
    assert ahead.take(MEMORY_BYTES) is None
    yield ahead
    ahead.close()


def test_as_many_are_started_as_are_missing(ahead: Ahead, bench: Bench) -> None:
    ahead.start(2)
    assert len(ahead) == 2
    before = descendants(bench.server.pid)
    ahead.start(2)
    assert descendants(bench.server.pid) == before


def test_one_that_stands_serves_a_candidate(ahead: Ahead, bench: Bench) -> None:
    ahead.start(1)
    worker = ahead.take(MEMORY_BYTES)
    assert worker is not None
    bench.load(worker, GOOD)
    assert worker.alive
    worker.close()
    assert len(ahead) == 0


def test_one_with_too_little_memory_is_not_taken_and_the_next_has_enough(ahead: Ahead) -> None:
    ahead.start(1)
    assert ahead.take(3 * MEMORY_BYTES) is None
    ahead.start(2)
    worker = ahead.take(3 * MEMORY_BYTES)
    assert worker is not None
    assert worker.memory.numel() >= 3 * MEMORY_BYTES
    worker.close()


def test_one_with_too_little_memory_does_not_stand_in_the_place_of_one_that_has_enough(ahead: Ahead) -> None:
    ahead.start(1)
    assert ahead.take(3 * MEMORY_BYTES) is None
    assert len(ahead) == 0


def test_one_that_ends_before_it_can_be_told_anything_is_no_candidates_fault(bench: Bench) -> None:
    made: list[Worker] = []

    def spawn(memory_bytes: int) -> Worker:
        made.append(bench.server.spawn(memory_bytes))
        os.kill(made[-1].pid, signal.SIGKILL)
        assert within(5, lambda: bench.server.ended(made[-1].number))
        return made[-1]

    ahead = Ahead(spawn, "cpu")
    ahead.start(1)
    assert len(ahead) == 0
    assert not made[0].scratch.exists()


def test_one_that_has_ended_meanwhile_is_no_candidates_fault(bench: Bench) -> None:
    made: list[Worker] = []

    def spawn(memory_bytes: int) -> Worker:
        made.append(bench.server.spawn(memory_bytes))
        return made[-1]

    ahead = Ahead(spawn, "cpu")
    ahead.take(MEMORY_BYTES)
    ahead.start(2)
    ahead.settle()
    os.kill(made[0].pid, signal.SIGKILL)
    assert within(5, lambda: bench.server.ended(made[0].number))
    taken = [ahead.take(MEMORY_BYTES), ahead.take(MEMORY_BYTES)]
    assert sorted(map(made.index, filter(None, taken))) == [1]
    made[1].close()


def test_closing_ends_those_that_stand_and_those_that_are_being_started(ahead: Ahead, bench: Bench) -> None:
    before = descendants(bench.server.pid)
    ahead.start(1)
    ahead.settle()
    ahead.start(2)
    ahead.close()
    assert len(ahead) == 0
    assert within(5, lambda: descendants(bench.server.pid) <= before)


class LeasedAhead:
    """One worker that is being started; notes whether its device is held when it is waited for and ended."""

    def __init__(self, lease: Path) -> None:
        self._lease = lease
        self.count = 1
        self.held: list[tuple[str, bool]] = []

    def __len__(self) -> int:
        return self.count

    def settle(self) -> None:
        self._note("settled")

    def close(self) -> None:
        self._note("ended")
        self.count = 0

    def _note(self, what: str) -> None:
        with self._lease.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.held.append((what, True))
            else:
                self.held.append((what, False))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """One whose device is a name, with a worker started ahead."""
    monkeypatch.setenv("KERNELWRIGHT_LEASES", str(tmp_path / "leases"))
    session = Session(task_of(tmp_path, CONVOLUTION), Target.CUDA, Limits(), print)
    vars(session)["device"] = "some-device"
    with session.device_lease():
        pass
    vars(session)["ahead"] = LeasedAhead(tmp_path / "leases" / "some-device")
    return session


def seen(session: Session) -> list[tuple[str, bool]]:
    return cast("LeasedAhead", session.ahead).held


def test_the_device_is_held_until_what_was_started_stands(session: Session) -> None:
    """It went on coming up beside whoever measured next."""
    with session.device_lease():
        assert seen(session) == []
    assert seen(session) == [("settled", True)]


def test_the_device_is_held_while_those_that_are_not_needed_are_ended(session: Session) -> None:
    session.drop_ahead()
    assert ("ended", True) in seen(session)
    before = len(seen(session))
    session.drop_ahead()
    assert len(seen(session)) == before


def test_the_end_of_a_session_waits_for_nobody(session: Session) -> None:
    session.close()
    assert seen(session) == [("ended", False)]
