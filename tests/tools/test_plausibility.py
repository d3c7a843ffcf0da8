"""When two clocks disagree, and which of them counts; all times by hand, in nanoseconds."""

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from judging import CONVOLUTION, LONG_INPUTS, task_of

from tasks.spec import Target
from tools import measurement
from tools.briefing import Machine
from tools.judge import ATTEMPTS, Judge
from tools.measurement import Excess, Samples
from tools.plausibility import clocks_disagree, disturbance, require_plausible, slower_clock_ns
from tools.results import CardState
from tools.session import Session
from tools.subject import Limits
from tools.timer import Timer
from tools.verdict import Verdict
from tools.workers import CandidateFault

MACHINE = Machine(
    device="a card", cores=1, cache_bytes=1, peak_bytes_per_s=1e15, peak_flops_per_s=1e15, torch="", python=""
)


def samples(median_ns: int, excess_ns: float, noise_ns: float = 0.0, pressure: float | None = 0.0) -> Samples:
    blocks = ((median_ns,), (median_ns,))
    return Samples(blocks, blocks, Excess(excess_ns, noise_ns), pressure)


def unneeded() -> NoReturn:
    raise AssertionError("launched calls are only measured where the GPU may have started calls late")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(task_of(tmp_path, CONVOLUTION, LONG_INPUTS), Target.CUDA, Limits(), print)
    made.__dict__["machine"] = MACHINE
    return made


@pytest.fixture
def host(session: Session) -> Session:
    made = Session(session.task, Target.CPU, Limits(), print)
    made.__dict__["machine"] = MACHINE
    return made


def refused(session: Session, measured: Samples, launched: Excess | None = None) -> bool:
    try:
        require_plausible(session, measured, unneeded if launched is None else lambda: launched)
    except CandidateFault as fault:
        assert fault.verdict is Verdict.IMPLAUSIBLE_TIME
        return True
    return False


@pytest.mark.parametrize(
    ("median", "excess", "noise", "lie"),
    [
        (20_000, 59_000, 0, False),
        (20_000, 61_000, 0, True),
        (20_000, 100_000, 20_000, False),
        (20_000, 130_000, 20_000, True),
        (4_000_000, 190_000, 0, False),
        (4_000_000, 210_000, 0, True),
    ],
)
def test_gpu_clocks_agree_within_what_waking_and_noise_make(
    session: Session, median: int, excess: float, noise: float, lie: bool
) -> None:
    assert refused(session, samples(median, excess, noise)) is lie


def test_a_call_that_the_gpu_started_late_is_judged_by_launched_calls(session: Session) -> None:
    """Side streams that honestly join were accused: the GPU looked at waiting work only every six milliseconds."""
    late = samples(13_000, 6_000_000)
    assert not refused(session, late, Excess(90_000, 0))
    assert refused(session, late, Excess(310_000, 0))
    assert slower_clock_ns(Target.CUDA, late) == 13_000


def test_the_slower_clock_counts_before_anyone_is_accused() -> None:
    assert slower_clock_ns(Target.CUDA, samples(20_000, 70_000, 20_000)) == 90_000
    assert slower_clock_ns(Target.CUDA, samples(20_000, 70_000, 30_000)) == 20_000
    assert slower_clock_ns(Target.CUDA, samples(20_000, -70_000)) == 20_000


def test_on_a_contended_host_the_judges_clock_counts_and_nobody_is_accused(host: Session) -> None:
    quiet = samples(20_000_000, 10_100_000)
    loaded = samples(20_000_000, 10_100_000, noise_ns=4_000_000, pressure=0.5)
    assert refused(host, quiet)
    assert not refused(host, loaded)
    assert slower_clock_ns(Target.CPU, loaded) == 30_100_000


@pytest.mark.parametrize(("median", "excess"), [(4_195_800, 440_100), (3_000_000, 9_900_000), (40_000_000, 19_900_000)])
def test_an_answer_a_few_ticks_late_on_the_host_costs_time_and_accuses_nobody(
    host: Session, median: int, excess: float
) -> None:
    """The first: an honest file was `implausible_time` on a machine of continuous integration."""
    assert not refused(host, samples(median, excess))
    assert slower_clock_ns(Target.CPU, samples(median, excess)) == median + excess


def test_faster_than_the_machine_can_be(session: Session) -> None:
    machine = MACHINE.model_copy(update={"peak_bytes_per_s": 1e9})
    session.__dict__["machine"] = machine
    least_ns = session.workload.input_bytes
    assert refused(session, samples(least_ns - 1, 0))
    assert not refused(session, samples(least_ns + 1, 0))


def test_no_time_at_all_is_refused_where_the_machines_peaks_are_not_known(session: Session) -> None:
    """Once the marks' own time is off, a clock that says nothing says less than nothing."""
    unknown = MACHINE.model_copy(update={"peak_bytes_per_s": None, "peak_flops_per_s": None})
    session.__dict__["machine"] = unknown
    assert refused(session, samples(0, 0))
    assert refused(session, samples(-1_300, 0))
    assert not refused(session, samples(1, 0))


@pytest.mark.parametrize(("excess", "counts"), [(50_000, 139_000), (253_000, 392_000)])
def test_the_judges_clock_counts_for_calls_that_wait_for_the_gpu_and_nobody_is_accused(
    session: Session, excess: float, counts: float
) -> None:
    """An honest kernel that synchronises was a liar or none by luck: its clocks differed by 0.25 ms."""
    waiting = replace(samples(139_000, excess), waits=True)
    assert not refused(session, waiting)
    assert slower_clock_ns(Target.CUDA, waiting) == counts


def test_who_fills_the_gpus_queue_is_charged_for_launching_and_not_accused(session: Session) -> None:
    """A kernel for each of 1,100 steps: the first thousand launches were queued ahead, and no clock held them."""
    waiting = replace(samples(2_200_000, 4_400_000), waits=True)
    assert not refused(session, waiting)
    assert slower_clock_ns(Target.CUDA, waiting) == 6_600_000


def test_who_waits_for_the_gpu_may_still_lie_too_much(session: Session) -> None:
    assert refused(session, replace(samples(139_000, 11_000_000), waits=True))
    assert not refused(session, replace(samples(4_000_000, 900_000), waits=True))
    assert slower_clock_ns(Target.CUDA, replace(samples(4_000_000, 900_000), waits=True)) == 4_900_000


def test_a_gpu_that_is_at_work_only_beside_the_baseline_is_no_accident(session: Session, host: Session) -> None:
    """A kernel that spins until its own next call would take turns with the baseline's."""
    assert refused(session, samples(20_000, -310_000))
    assert not refused(session, samples(20_000, -290_000))
    assert not refused(session, replace(samples(20_000, -310_000), waits=True))
    assert clocks_disagree(Target.CUDA, samples(20_000, -310_000))
    assert not refused(host, samples(20_000_000, -310_000))


def test_what_disturbed_a_measurement_is_told() -> None:
    assert disturbance(Target.CPU, samples(1, 0, pressure=0.45), None) == (
        "processes waited for a processor during 45% of the measurement"
    )
    assert disturbance(Target.CPU, samples(1, 0, pressure=None), None) == ""
    assert "2 other processes" in disturbance(Target.CUDA, samples(1, 0), CardState(other_processes=2))
    assert disturbance(Target.CUDA, samples(1, 0, pressure=1.0), CardState(other_processes=0)) == ""


@pytest.mark.parametrize(
    ("target", "late", "right", "great"),
    [
        (Target.CPU, samples(5_000_000, 2_700_000), samples(5_200_000, 40_000), samples(5_000_000, 31_000_000)),
        (Target.CUDA, samples(250_800, 101_500), samples(250_900, 9_000), samples(250_800, 190_000)),
    ],
)
def test_late_answers_are_measured_again_and_a_lie_stays(
    host: Session, monkeypatch: pytest.MonkeyPatch, target: Target, late: Samples, right: Samples, great: Samples
) -> None:
    """One measurement of five on a host had answers that came a scheduler's tick late; one of 180 on a GPU had them
    0.1 ms late. Honest kernels were called liars."""
    taken: list[Samples] = []

    def interleave(_candidate: Timer, _baseline: Timer, _enough: object, _undisturbed: object) -> Samples:
        return taken.pop(0)

    monkeypatch.setattr(measurement, "interleave", interleave)
    timer = Timer.__new__(Timer)
    with Judge(host.task, target) as judge:
        taken[:] = [late, right]
        assert judge._measure(timer, timer) == right
        taken[:] = [late] * ATTEMPTS
        assert judge._measure(timer, timer) == late
        assert not taken
        taken[:] = [great, great, right]
        assert judge._measure(timer, timer) == great
        assert taken == [right]
