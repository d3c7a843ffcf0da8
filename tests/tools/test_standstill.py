"""Whether a stopped group stands still is told from the kernel's states and clocks, not from the signal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tools import standstill
from tools.standstill import (
    STOPS_A_WAKE,
    WOKEN,
    Group,
    Standing,
    Standstill,
    brought_to_a_standstill,
)
from tools.usage import members

BUSY = (
    "import os, threading\nos.fork()\nthreading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\nwhile 1: pass"
)


def started(code: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{code}"], stdout=-1, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.1)
    return process


def ended(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def busy() -> Iterator["subprocess.Popen[bytes]"]:
    process = started(BUSY)
    yield process
    ended(process)


def test_a_stopped_group_uses_nothing_until_it_goes_on(busy: "subprocess.Popen[bytes]") -> None:
    standstill = brought_to_a_standstill(Group(busy.pid), 10.0)
    assert standstill is not None
    time.sleep(0.2)
    assert standstill.used_since_ns() == 0
    os.killpg(busy.pid, signal.SIGCONT)
    time.sleep(0.2)
    assert standstill.used_since_ns() > 1_000_000


def test_a_child_that_goes_on_alone_is_seen(busy: "subprocess.Popen[bytes]") -> None:
    (child,) = set(members(busy.pid)) - {busy.pid}
    standstill = brought_to_a_standstill(Group(busy.pid), 10.0)
    assert standstill is not None
    os.kill(child, signal.SIGCONT)
    time.sleep(0.2)
    os.kill(child, signal.SIGSTOP)
    assert standstill.used_since_ns() > 1_000_000


def test_a_group_that_goes_on_by_itself_is_seen_when_it_does_so_again(busy: "subprocess.Popen[bytes]") -> None:
    standing = Standing(busy.pid)
    stood = []
    for _ in range(WOKEN + 1):
        assert standing.begin() is not None
        os.killpg(busy.pid, signal.SIGCONT)
        time.sleep(0.2)
        stood.append(standing.end())
    assert stood == [*[True] * WOKEN, False]


def test_a_group_that_is_only_stopped_and_let_go_stood_still(busy: "subprocess.Popen[bytes]") -> None:
    standing = Standing(busy.pid)
    for _ in range(100):
        assert standing.begin() is not None
        assert standing.end()
        os.killpg(busy.pid, signal.SIGCONT)


def test_a_group_that_works_after_it_was_done_is_counted_as_long_as_it_does(busy: "subprocess.Popen[bytes]") -> None:
    standing = Standing(busy.pid)
    assert standing.begin() == 0
    os.killpg(busy.pid, signal.SIGCONT)
    standing.mark()
    time.sleep(0.2)
    worked_ns = standing.begin()
    assert worked_ns is not None
    # As much of it as the machine gave it a processor for.
    assert worked_ns > 10_000_000


def test_a_group_that_only_waits_has_hardly_worked_until_it_is_stopped() -> None:
    waiting = started("import time; time.sleep(100)")
    standing = Standing(waiting.pid)
    assert standing.begin() == 0
    os.killpg(waiting.pid, signal.SIGCONT)
    time.sleep(0.1)
    standing.mark()
    time.sleep(0.2)
    worked_ns = standing.begin()
    ended(waiting)
    assert worked_ns is not None
    assert worked_ns < 10_000_000


def test_a_group_that_waits_in_the_kernel_is_counted_though_it_uses_no_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No signal reaches a process that waits for the child that it lent its memory to."""
    monkeypatch.setattr(standstill, "STANDSTILL_S", 0.5)
    lending = started("import ctypes\nif not ctypes.CDLL(None).vfork(): ctypes.CDLL(None).usleep(400_000)")
    standing = Standing(lending.pid)
    standing.mark()
    worked_ns = standing.begin()
    ended(lending)
    assert worked_ns is not None
    assert worked_ns >= 500_000_000


def test_a_worker_that_is_stopped_for_hundreds_of_candidates_may_be_counted_late_more_often() -> None:
    """A warm baseline is stopped thousands of times, and would be taken for a liar in the end."""
    standing = Standing(os.getpid())
    used = iter([1] * (WOKEN + 1) + [0] * STOPS_A_WAKE + [1, 1])
    answers = []
    for used_ns in used:
        standing._stops += 1
        standing._now = cast("Standstill", SimpleNamespace(used_since_ns=lambda used_ns=used_ns: used_ns))
        answers.append(standing.end())
    assert answers[:WOKEN] == [True] * WOKEN
    assert not answers[WOKEN]
    assert answers[-3]
    assert not answers[-1]


def test_a_process_that_is_started_later_is_found_a_little_later() -> None:
    parent = started("import os, time; time.sleep(0.5); os.fork(); time.sleep(100)")
    group = Group(parent.pid)
    assert group.pids() == [parent.pid]
    deadline = time.monotonic() + 5
    while len(group.pids()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(group.pids()) == set(members(parent.pid))
    ended(parent)


def test_what_the_kernel_does_for_a_group_is_waited_for() -> None:
    clearing = started("import mmap, time; mmap.mmap(-1, 1 << 30, flags=0x8022); time.sleep(100)")
    standstill = brought_to_a_standstill(Group(clearing.pid), 10.0)
    resident = int(Path(f"/proc/{clearing.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    ended(clearing)
    assert standstill is not None
    # All of it or, where it was stopped before or after, nothing.
    assert resident > 1 << 30 or resident < 1 << 27


def test_a_group_that_only_waits_is_one() -> None:
    waiting = started("import time; time.sleep(100)")
    standstill = brought_to_a_standstill(Group(waiting.pid), 0.2)
    ended(waiting)
    assert standstill is not None


def test_a_group_that_is_gone_is_one() -> None:
    gone = started("")
    ended(gone)
    assert brought_to_a_standstill(Group(gone.pid), 0.2) is not None
