"""Rollouts one after the other and at once, and what ends them."""

import os
import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest

from agent.scheduling import at_once, one_by_one
from runs.events import Ended, EndReason


def ended(message: str, reason: EndReason = EndReason.SUBMITTED) -> Ended:
    return Ended(turn=1, reason=reason, message=message)


def giving(works: list[Callable[[], Ended]]) -> Callable[[], Callable[[], Ended] | None]:
    """Gives these, one a call, then none."""
    return lambda: works.pop(0) if works else None


def test_one_by_one_keeps_to_this_thread_and_the_order() -> None:
    threads: list[int] = []

    def work(message: str) -> Ended:
        threads.append(threading.get_ident())
        return ended(message)

    ends = one_by_one(giving([lambda: work("first"), lambda: work("second")]))
    assert [end.message for end in ends] == ["first", "second"]
    assert threads == 2 * [threading.get_ident()]


def test_as_many_go_on_at_once_as_may_and_never_more() -> None:
    # Each waits until three are there at once, so the test ends only if they are.
    meeting = threading.Barrier(3, timeout=60)
    now, most = 0, 0
    lock = threading.Lock()

    def work() -> Ended:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        meeting.wait()
        with lock:
            now -= 1
        return ended("done")

    assert len(at_once(giving([work] * 9), 3, lambda: None)) == 9
    assert most == 3


def test_it_asks_again_for_work_whenever_a_rollout_has_ended() -> None:
    """A strategy may have nothing to start until another rollout has ended."""
    finished: list[str] = []
    asked: list[int] = []

    def next_work() -> Callable[[], Ended] | None:
        asked.append(len(finished))
        if len(asked) in (1, 3):
            return partial(work, f"rollout-{len(asked)}")
        return None

    def work(name: str) -> Ended:
        finished.append(name)
        return ended(name)

    assert [end.message for end in at_once(next_work, 2, lambda: None)] == ["rollout-1", "rollout-3"]
    # One is started, then there is none; one has ended, so one more; both have ended, and there is none.
    assert asked[0] == 0 and asked[-1] == 2


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_and_their_ends_are_returned(sent: signal.Signals) -> None:
    stopping = threading.Event()
    both = threading.Barrier(2, timeout=60)

    def work() -> Ended:
        if both.wait() == 0:
            os.kill(os.getpid(), sent)
        assert stopping.wait(60)
        return ended("stopped", EndReason.INTERRUPTED)

    before = signal.getsignal(sent)
    works: list[Callable[[], Ended]] = [work] * 5
    give = giving(works)
    ends = at_once(lambda: None if stopping.is_set() else give(), 2, stopping.set)
    assert [end.reason for end in ends] == 2 * [EndReason.INTERRUPTED]
    assert len(works) == 3
    assert signal.getsignal(sent) is before


def test_what_a_rollout_raises_comes_after_the_others_have_ended() -> None:
    stopping = threading.Event()
    others: list[str] = []

    def broken() -> Ended:
        raise ZeroDivisionError("oh")

    def other() -> Ended:
        assert stopping.wait(60)
        others.append("ended")
        return ended("stopped")

    with pytest.raises(ZeroDivisionError, match="oh"):
        at_once(giving([other, broken]), 2, stopping.set)
    assert others == ["ended"]


def test_what_starting_raises_comes_after_the_others_have_ended() -> None:
    stopping = threading.Event()
    others: list[str] = []

    def other() -> Ended:
        assert stopping.wait(60)
        others.append("ended")
        return ended("stopped")

    works: list[Callable[[], Ended]] = [other]

    def next_work() -> Callable[[], Ended] | None:
        if works:
            return works.pop()
        if stopping.is_set():
            return None
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        at_once(next_work, 2, stopping.set)
    assert others == ["ended"]
