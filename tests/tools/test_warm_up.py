"""How often a subject is called before it is timed, by a timer whose calls take what a list says."""

from types import SimpleNamespace
from typing import cast

import pytest

from tools.session import Session
from tools.timer import Timer, warm_up

MS = 1_000_000


class ListedCalls(Timer):
    """Its calls take these nanoseconds in turn, the last of them for ever."""

    def __init__(self, device: str, *calls_ns: int) -> None:
        self.session = cast("Session", SimpleNamespace(device=device))
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
