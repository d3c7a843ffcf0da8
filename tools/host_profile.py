"""What can be told of a candidate's calls on the host: their time, and how many threads share the work."""

import contextlib
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tools.candidate import Candidate
from tools.process import children
from tools.profile_results import HostThreads
from tools.session import Session
from tools.timer import SLOW_NS, start_timer, warm_up

_CALLS = 20
_SLOW_CALLS = 3
_LIMIT_S = 10.0
_BUSY_SHARE = 0.1
"""A thread that computed for less than this share of the time does not share the work."""


class HostProfile(NamedTuple):
    """What was measured."""

    calls: int
    median_ns: float
    threads: HostThreads


def profile_on_host(session: Session, candidate: Candidate) -> HostProfile:
    """Time calls on the benchmark shape, and see which threads of the worker compute meanwhile.

    Raises:
        CandidateFault: the candidate fails before or in a call.
    """
    timer = start_timer(session, candidate)
    try:
        warm_up(timer)
        pid = timer.subject.worker.pid
        planned = _SLOW_CALLS if timer.last_call_ns > SLOW_NS else _CALLS
        began = time.monotonic()
        before = _thread_ns(pid)
        samples = [timer.call()]
        while len(samples) < planned and time.monotonic() - began < _LIMIT_S:
            samples.append(timer.call())
        spent = {thread: ns - before.get(thread, 0) for thread, ns in _thread_ns(pid).items()}
    finally:
        timer.close()
    total = sum(samples)
    threads = HostThreads(
        busy_threads=sum(ns >= _BUSY_SHARE * total for ns in spent.values()),
        busy_cores=sum(spent.values()) / total,
    )
    return HostProfile(len(samples), median(samples), threads)


def _thread_ns(pid: int) -> dict[str, int]:
    """The processor time in nanoseconds of every thread of a process and of its descendants, by number."""
    found = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        # A thread may end between the two looks.
        with contextlib.suppress(OSError):
            found[task.name] = int((task / "schedstat").read_text().split()[0])
    for child in children(pid):
        found.update(_thread_ns(child))
    return found
