"""The baselines of a session: prepared without a quiet machine, compiled by one process at a time, timed afterwards."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import CONVOLUTION, task_of
from processes import within

from tasks.errors import HarnessError
from tasks.loader import Task
from tasks.spec import Target
from tools.baselines import COMPILED, EAGER, baseline_candidates
from tools.cache import cache_root, claimed
from tools.candidate import Candidate
from tools.pace import Pace, compiling
from tools.server_process import Processes
from tools.session import Session
from tools.subject import Limits

pytestmark = pytest.mark.usefixtures("small_caches")


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return task_of(tmp_path, CONVOLUTION)


class Watched:
    """A session's baselines, and what it said meanwhile."""

    def __init__(self, task: Task, processes: Processes) -> None:
        self.said: list[str] = []
        self.session = Session(task, Target.CPU, Limits(), self.said.append, processes=processes)
        self.pace = Pace(self.session)

    @property
    def prepared(self) -> list[str]:
        start = "preparing the baseline: "
        return [each.removeprefix(start) for each in self.said if each.startswith(start)]


@pytest.fixture
def watched(task: Task, processes: Processes) -> Iterator[Watched]:
    made = Watched(task, processes)
    yield made
    made.pace.close()
    made.session.close()


def test_what_is_prepared_is_timed_later_without_being_started_again(watched: Watched) -> None:
    watched.pace.prepare()
    assert not watched.pace.baselines
    assert watched.pace.warm == 2
    # A host's bandwidth is measured with it, which must not be while others build.
    assert "machine" not in vars(watched.session)
    timer = watched.pace.fastest()
    assert watched.prepared == [COMPILED, EAGER]
    assert [each.name for each in watched.pace.baselines] == [EAGER, COMPILED]
    medians = {each.name: each.median_ns for each in watched.pace.baselines}
    assert all(median is not None and median > 0 for median in medians.values())
    assert medians[watched.pace.fastest_name] == min(filter(None, medians.values()))
    assert watched.pace.warm == 1
    assert watched.pace.fastest() is timer
    watched.pace.prepare()
    assert watched.prepared == [COMPILED, EAGER]


def test_a_baseline_that_was_ended_while_it_waited_is_started_again(watched: Watched) -> None:
    watched.pace.prepare()
    worker = watched.pace._prepared[COMPILED].subject.worker
    os.killpg(worker.pid, signal.SIGKILL)
    assert within(5, lambda: worker.server.ended(worker.number))
    watched.pace.fastest()
    assert watched.prepared == [COMPILED, EAGER, COMPILED]
    assert all(each.median_ns is not None for each in watched.pace.baselines)


def test_who_finds_a_baseline_being_compiled_prepares_the_others_and_waits(watched: Watched, task: Task) -> None:
    compiled = baseline_candidates(task, Target.CPU)[COMPILED]
    other = compiling(compiled)
    assert other is not None
    with other:
        assert compiling(compiled, waiting=False) is None
        preparing = threading.Thread(target=watched.pace.prepare)
        preparing.start()
        assert within(60, lambda: "waiting: another process is compiling the same baseline" in watched.said)
        assert watched.prepared == [EAGER]
    preparing.join(120)
    assert watched.prepared == [EAGER, COMPILED]
    assert watched.pace.warm == 2


def test_a_process_that_dies_lets_others_compile(task: Task) -> None:
    compiled = baseline_candidates(task, Target.CPU)[COMPILED]
    lock = cache_root() / "inductor" / f"compiling-{compiled.id[:16]}"
    lock.parent.mkdir(exist_ok=True)
    child = os.fork()
    if child == 0:
        held = claimed(lock, fcntl.LOCK_EX)
        signal.pause()
        del held
        os._exit(0)
    assert within(5, lambda: lock.exists() and compiling(compiled, waiting=False) is None)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert compiling(compiled, waiting=False) is not None


def test_baselines_are_compiled_where_the_caches_cannot_be_locked(
    watched: Watched, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tools.pace.cache_root", lambda: tmp_path / "gone")
    assert compiling(baseline_candidates(task, Target.CPU)[COMPILED]) is None
    watched.pace.prepare()
    assert sorted(watched.prepared) == sorted([COMPILED, EAGER])


def failing(candidate: Candidate) -> Candidate:
    return Candidate(candidate.text + "\n    def forward(self, x):\n        raise RuntimeError('why')\n")


def test_a_baseline_that_cannot_be_had_is_told_and_eager_must_be_had(
    watched: Watched, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = baseline_candidates(task, Target.CPU)
    monkeypatch.setattr("tools.pace.baseline_candidates", lambda *_: {**right, COMPILED: failing(right[COMPILED])})
    watched.pace.prepare()
    watched.pace.fastest()
    assert watched.pace.fastest_name == EAGER
    assert [(each.name, each.median_ns is None, "why" in each.note) for each in watched.pace.baselines] == [
        (EAGER, False, False),
        (COMPILED, True, True),
    ]
    watched.pace.close()
    monkeypatch.setattr("tools.pace.baseline_candidates", lambda *_: {**right, EAGER: failing(right[EAGER])})
    with pytest.raises(HarnessError, match=r"the baseline eager could not be timed: .*why"):
        watched.pace.fastest()
    assert watched.pace.warm == 0


class Clock:
    """A card that tells a clock which a test sets."""

    def __init__(self, mhz: int | None) -> None:
        self.mhz = mhz
        self.noted = 0

    def sm_clock_mhz(self) -> int | None:
        return self.mhz

    def note_warm(self) -> None:
        self.noted += 1

    def is_warm(self) -> bool:
        return True


def timed_anew(watched: Watched, measured_mhz: int | None) -> bool:
    """Whether all baselines are timed again for the candidate after one that was measured at this clock."""
    watched.pace.note_clock(measured_mhz)
    before = len(watched.prepared)
    watched.pace.fastest()
    return len(watched.prepared) > before


def test_baselines_are_timed_anew_where_the_gpus_clock_has_moved(watched: Watched) -> None:
    clock = Clock(1980)
    vars(watched.session)["card"] = clock
    watched.pace.fastest()
    # What a warm card is, baselines say; a candidate could keep it cold.
    assert clock.noted == 2
    assert not timed_anew(watched, 1980)
    assert not timed_anew(watched, 1905)
    assert not timed_anew(watched, None)
    clock.mhz = 1500
    assert timed_anew(watched, 1500)
    assert not timed_anew(watched, 1500)
    clock.mhz = 1980
    assert timed_anew(watched, 1980)


def test_baselines_are_timed_anew_once_where_candidates_alone_have_another_clock(watched: Watched) -> None:
    vars(watched.session)["card"] = Clock(1980)
    watched.pace.fastest()
    assert timed_anew(watched, 1500)
    assert not timed_anew(watched, 1500)
    assert not timed_anew(watched, 1980)


def test_a_card_that_tells_no_clock_has_baselines_timed_once(watched: Watched) -> None:
    vars(watched.session)["card"] = Clock(None)
    watched.pace.fastest()
    assert not timed_anew(watched, 1980)
