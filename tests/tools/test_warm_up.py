"""How often a subject is called before it is timed, by a timer whose calls take what a list says."""

from types import SimpleNamespace
from typing import cast

import pytest

from tools.session import Session
from tools.timer import WARM_UP_NS, Timer, warm_up

MS = 1_000_000


class ListedCalls(Timer):
    """Its calls take these nanoseconds in turn, the last of them for ever."""

    def __init__(self, device: str, *calls_ns: int, card: object = None) -> None:
        self.session = cast("Session", SimpleNamespace(device=device, card=card))
        self.calls_ns = calls_ns
        self.calls = 0

    def call(self, *, queued: bool = True, counted: bool = True) -> int:  # noqa: ARG002
        self.last_call_ns = self.calls_ns[min(self.calls, len(self.calls_ns) - 1)]
        self.calls += 1
        return 0


@pytest.mark.parametrize(
    ("device", "calls_ns", "calls"),
    [
        ("cuda", (1 * MS,), 4),
        ("cuda", (19 * MS,), 4),
        ("cuda", (21 * MS,), 2),
        ("cuda", (400 * MS, 1 * MS), 4),  # the first call loaded something
        ("cuda", (1 * MS, 21 * MS, 1 * MS), 4),
        ("cuda", (501 * MS,), 1),
        ("cpu", (21 * MS,), 4),
    ],
)
def test_how_often_a_subject_is_called_before_it_is_timed(device: str, calls_ns: tuple[int, ...], calls: int) -> None:
    timer = ListedCalls(device, *calls_ns)
    warm_up(timer, least_ns=0)
    assert timer.calls == calls


class ListedClocks:
    """A card that is warm from some question on."""

    def __init__(self, cold_for: int) -> None:
        self.cold_for = cold_for

    def is_warm(self) -> bool:
        self.cold_for -= 1
        return self.cold_for < 0


@pytest.mark.parametrize(("cold_for", "calls"), [(0, 4), (3, 7)])
def test_a_card_that_is_warm_is_warmed_up_no_longer(cold_for: int, calls: int) -> None:
    timer = ListedCalls("cuda", MS, card=ListedClocks(cold_for))
    warm_up(timer)
    assert timer.calls == calls


def test_a_card_that_never_gets_warm_is_warmed_up_for_all_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**12, WARM_UP_NS // 10))
    monkeypatch.setattr("tools.timer.time.perf_counter_ns", lambda: next(clock))
    timer = ListedCalls("cuda", MS, card=ListedClocks(1000))
    warm_up(timer)
    # The clock goes on by a tenth each time that it is asked: once at the beginning, and after the fourth call and each
    # one that follows, until it says ten tenths.
    assert timer.calls == 13
