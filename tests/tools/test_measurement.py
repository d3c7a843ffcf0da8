"""When a measurement ends, and what it has checked by then; timers that answer from a list stand in for workers."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
from judging import CONVOLUTION, LONG_INPUTS, task_of

from tasks.spec import Target
from tools.measurement import LOOK_ROUNDS, MAX_ROUNDS, Excess, Samples, interleave
from tools.plausibility import NARROW_BLOCKS, narrow
from tools.session import Session
from tools.subject import Limits
from tools.timer import Timer

WALL_NS = 5_000


class ListedTimer(Timer):
    """A timer whose calls take what a list says, and whose judge's clock exceeds that by what another says."""

    def __init__(self, session: Session, times_ns: Iterable[int], walls_ns: Iterable[int]) -> None:
        self.session = session
        self.wall_over_device_ns = []
        self.last_call_ns = self.last_checked_ns = 1_000_000
        self._times, self._walls = iter(times_ns), iter(walls_ns)
        self.calls = self.quick = self.full = 0

    def call(self, *, queued: bool = True) -> int:  # noqa: ARG002
        self.calls += 1
        self.wall_over_device_ns.append(next(self._walls))
        return next(self._times)

    def check_last(self, limits_of: object) -> None:  # noqa: ARG002
        self.full += 1

    def check_last_quickly(self) -> None:
        self.quick += 1


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(task_of(tmp_path, CONVOLUTION, LONG_INPUTS), Target.CPU, Limits(), print)


def measured(
    session: Session, times_ns: list[int], walls_ns: list[int], baseline_ns: list[int] | None = None
) -> tuple[Samples, ListedTimer]:
    ours, theirs = (
        ListedTimer(session, itertools.cycle(times), itertools.cycle(walls_ns))
        for times in (times_ns, baseline_ns or times_ns)
    )
    return interleave(ours, theirs, lambda samples: narrow(Target.CUDA, samples)), ours


@pytest.fixture(autouse=True)
def _no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.measurement.WARM_UP_NS", 0)


def test_a_steady_measurement_ends_with_the_fewest_rounds_and_all_its_checks(session: Session) -> None:
    samples, timer = measured(session, [20_000], [WALL_NS])
    assert len(samples.candidate) == len(samples.baseline) == NARROW_BLOCKS
    # One while settling, and one in each stretch.
    assert timer.full == 1 + NARROW_BLOCKS // (2 * LOOK_ROUNDS)
    # Every call but the warm-up's and the one that was checked in full.
    assert timer.quick == sum(map(len, samples.candidate)) + 1


def test_a_hopeless_candidate_is_not_measured_for_long(session: Session) -> None:
    samples, timer = measured(session, [200_000, 203_000, 198_000], [WALL_NS], baseline_ns=[20_000])
    assert len(samples.candidate) == 2 * LOOK_ROUNDS
    assert timer.full == 2


def test_a_measurement_whose_ratio_is_not_known_yet_goes_on(session: Session) -> None:
    samples, _ = measured(session, [20_000, 23_000, 19_000, 26_000, 21_000], [WALL_NS])
    assert len(samples.candidate) == 2 * MAX_ROUNDS


def test_a_measurement_whose_clocks_are_noisy_goes_on(session: Session) -> None:
    """Else a candidate could make noise, have the measurement end early, and hide more behind it."""
    samples, _ = measured(session, [20_000], [0, 200_000, 400_000, 100_000, 300_000])
    assert len(samples.candidate) == 2 * MAX_ROUNDS


@pytest.mark.parametrize(
    ("times", "noise_ns", "enough"),
    [
        ([20_000], 19_900.0, True),  # three times that is less than the 60 us that are allowed
        ([20_000], 20_100.0, False),
        ([2_000_000], 33_300.0, True),  # or than 5 % of the time
        ([2_000_000], 33_400.0, False),
    ],
)
def test_how_much_noise_of_the_clocks_is_too_much(times: list[int], noise_ns: float, enough: bool) -> None:
    blocks = tuple((time,) for time in times * NARROW_BLOCKS)
    assert narrow(Target.CUDA, Samples(blocks, blocks, Excess(0.0, noise_ns), None)) is enough
