"""When a measurement ends, and what it has checked by then; timers that answer from a list stand in for workers."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
from judging import CONVOLUTION, LONG_INPUTS, task_of

from tasks.errors import HarnessError
from tasks.spec import Target
from tools.draws import Draws
from tools.measurement import LEAST_CALLS, MAX_ROUNDS, Excess, Samples, interleave, launched_excess
from tools.plausibility import NARROW_BLOCKS, narrow
from tools.session import Session
from tools.subject import ADDRESS_SLACK, INPUT_SETS, Limits
from tools.timer import PLACES, Timer, _drawn_places
from tools.verdict import Verdict
from tools.workers import CandidateFault

WALL_NS = 5_000


class ListedTimer(Timer):
    """A timer whose calls take what a list says, and whose judge's clock exceeds that by what another says."""

    def __init__(
        self, session: Session, times_ns: Iterable[int], walls_ns: Iterable[int], call_ns: int = 1_000_000
    ) -> None:
        self.session = session
        self.wall_over_device_ns = []
        self.last_call_ns = self.last_checked_ns = call_ns
        self.settled_ns = 0
        self._times, self._walls = iter(times_ns), iter(walls_ns)
        self.calls = self.quick = self.full = 0
        self._gated_calls = self._waiting_calls = 0

    def call(self, *, queued: bool = True, counted: bool = True) -> int:  # noqa: ARG002
        self.calls += 1
        self.wall_over_device_ns.append(next(self._walls))
        return next(self._times)

    def check_last(self, limits_of: object) -> None:  # noqa: ARG002
        self.full += 1

    def check_last_quickly(self) -> None:
        self.quick += 1
        if self.settled_ns and self.quick > 1:
            self.last_call_ns = self.last_checked_ns = self.settled_ns


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(task_of(tmp_path, CONVOLUTION, LONG_INPUTS), Target.CPU, Limits(), print)


def measured(
    session: Session,
    times_ns: list[int],
    walls_ns: list[int],
    baseline_ns: list[int] | None = None,
    calls_ns: tuple[int, int] = (1_000_000, 1_000_000),
    settled_ns: int = 0,
    called: int = 0,
) -> tuple[Samples, ListedTimer]:
    """`calls_ns` is what a call of each side takes by the judge's clock, and the candidate's `settled_ns` once it is
    measured; `called` is how often it was called before."""
    ours, theirs = (
        ListedTimer(session, itertools.cycle(times), itertools.cycle(walls_ns), call_ns)
        for times, call_ns in zip((times_ns, baseline_ns or times_ns), calls_ns, strict=True)
    )
    ours.settled_ns = settled_ns
    ours.calls = called
    return interleave(ours, theirs, lambda samples: narrow(Target.CUDA, samples), lambda: None), ours


@pytest.fixture(autouse=True)
def _no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.measurement.WARM_UP_NS", 0)


def test_a_steady_measurement_ends_with_the_fewest_rounds_and_all_its_checks(session: Session) -> None:
    samples, timer = measured(session, [20_000], [WALL_NS])
    assert len(samples.candidate) == len(samples.baseline) == NARROW_BLOCKS
    # One while settling, and one in each three rounds.
    assert timer.full == 1 + 2
    # Every call but the warm-up's and the one that was checked in full.
    assert timer.quick == sum(map(len, samples.candidate)) + 1


def test_a_hopeless_candidate_is_known_after_two_rounds_with_an_output_checked(session: Session) -> None:
    samples, timer = measured(session, [200_000, 203_000, 198_000], [WALL_NS], baseline_ns=[20_000], called=16)
    assert len(samples.candidate) == 4
    assert timer.full == 2
    assert timer.quick == sum(map(len, samples.candidate)) + 1


def test_a_hopeless_candidate_whose_clocks_disagree_is_not_accused_by_fewer_calls(session: Session) -> None:
    ours = ListedTimer(session, itertools.cycle([200_000]), itertools.cycle([WALL_NS + 70_000]))
    ours.calls = LEAST_CALLS
    theirs = ListedTimer(session, itertools.cycle([20_000]), itertools.cycle([WALL_NS]))
    samples = interleave(ours, theirs, lambda samples: narrow(Target.CUDA, samples), lambda: None)
    assert len(samples.candidate) == 6


def test_calls_that_are_long_and_far_slower_are_timed_one_by_one(session: Session) -> None:
    samples, _ = measured(session, [48_000_000, 48_500_000], [WALL_NS], [800_000], calls_ns=(50_000_000, 2_000_000))
    assert {len(block) for block in samples.candidate} == {1}


def test_a_hopeless_candidate_is_called_as_often_as_it_takes_to_meet_an_address_again(session: Session) -> None:
    """Candidates that kept answers by the address of the input, or were right in twelve calls only, were `correct`:
    hopeless as they were, their measurement ended after four."""
    samples, timer = measured(session, [8_000_000], [WALL_NS], [800_000], calls_ns=(9_000_000, 2_000_000))
    assert LEAST_CALLS <= timer.calls < LEAST_CALLS + 2 * 3
    assert len(samples.candidate) < 2 * MAX_ROUNDS
    # The fewest calls that bring one of the places in a set again, whatever is drawn.
    assert LEAST_CALLS > INPUT_SETS * PLACES


def test_one_whose_calls_are_long_is_known_as_soon_as_it_is_hopeless(session: Session) -> None:
    """The calls that are missing are made on a small shape."""
    samples, timer = measured(session, [48_000_000], [WALL_NS], [800_000], calls_ns=(50_000_000, 2_000_000))
    assert [len(block) for block in samples.candidate] == [1] * 4
    # Four are the warm-up, one is checked quickly.
    assert timer.calls == 4 + 1 + 4 < LEAST_CALLS


def test_a_baseline_that_fails_in_launched_calls_is_not_the_candidates_fault(session: Session) -> None:
    samples, timer = measured(session, [20_000], [WALL_NS])
    baseline = ListedTimer(session, itertools.cycle([20_000]), itertools.cycle([WALL_NS]))

    def fail() -> None:
        raise CandidateFault(Verdict.STALE_OUTPUT, "wrong")

    baseline.check_last_quickly = fail  # type: ignore[method-assign]
    with pytest.raises(HarnessError, match="the baseline failed"):
        launched_excess(timer, baseline, samples)


def test_places_are_few_and_different() -> None:
    drawn = [_drawn_places(Draws("cpu")) for _ in range(20)]
    assert all(len(set(places)) == PLACES and max(places) < ADDRESS_SLACK for places in drawn)
    assert len(set(drawn)) > 1


@pytest.mark.parametrize("calls_ns", [(50_000_000, 30_000_000), (9_000_000, 1_000_000)])
def test_calls_that_are_as_long_as_the_baselines_or_short_are_not(session: Session, calls_ns: tuple[int, int]) -> None:
    samples, _ = measured(session, [20_000, 26_000], [WALL_NS], calls_ns=calls_ns)
    assert {len(block) for block in samples.candidate} == {1, 2, 3}


def test_who_is_slow_only_before_the_measurement_has_as_many_calls_as_others(session: Session) -> None:
    """The number of rounds once followed from the last call before them, which a candidate may make as slow as it
    likes: three rounds of single calls were all that it was seen in."""
    samples, _ = measured(session, [20_000, 26_000], [WALL_NS], calls_ns=(900_000_000, 1_000_000), settled_ns=1_000_000)
    assert len(samples.candidate) == 2 * MAX_ROUNDS
    assert {len(block) for block in samples.candidate[2:]} == {1, 2, 3}


def test_very_slow_calls_are_measured_in_three_rounds(session: Session) -> None:
    samples, _ = measured(session, [600_000_000, 900_000_000], [WALL_NS], calls_ns=(900_000_000, 900_000_000))
    assert [len(block) for block in samples.candidate] == [1] * 6


def test_rounds_end_when_their_time_is_spent(session: Session) -> None:
    """A call of each side takes 50 ms, so a round of four blocks of 1 to 3 calls takes 0.2 to 0.6 s: six are always
    made, and take longer than the two seconds there are, or nearly."""
    samples, _ = measured(session, [20_000, 26_000], [WALL_NS], calls_ns=(50_000_000, 50_000_000))
    assert 12 <= len(samples.candidate) <= 16


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


@pytest.mark.parametrize(
    ("blocks", "excess", "enough"),
    [
        (4, Excess(0.0, 19_900.0), True),
        (4, Excess(0.0, 20_100.0), False),  # three times that may hide more than 60 us
        (4, Excess(61_000.0, 0.0), False),
        (6, Excess(61_000.0, 20_100.0), True),
    ],
)
def test_how_soon_a_hopeless_candidate_is_believed_to_be_one(blocks: int, excess: Excess, enough: bool) -> None:
    ours, theirs = (((time,),) * blocks for time in (200_000, 20_000))
    assert narrow(Target.CUDA, Samples(ours, theirs, excess, None)) is enough
