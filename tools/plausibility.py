"""Refuses times that nothing honest can reach, and takes the judge's clock where the worker's disagrees."""

from collections.abc import Callable

from tasks.spec import Target
from tools.measurement import Excess, Samples
from tools.results import CardState
from tools.session import Session
from tools.statistics import median_ns, ratio_interval
from tools.verdict import Verdict
from tools.workers import CandidateFault

OPERATION_FLOOR_SHARE = 1.0 / 3.0
"""A fast algorithm may save operations (1-D Winograd F(2,3) 1.5 times, F(4,3) 2 times), so only a third of the
operation floor is impossible."""
ALLOWED_SHARE = 0.05
ALLOWED_NS = {Target.CUDA: 60_000.0, Target.CPU: 200_000.0}
"""The judge's clock may exceed the worker's by this share of the time, or by this much: it holds what it takes to wake
a process. Both sides of a measurement pay for that, so only their difference counts."""
COUNTED_NOISE, REFUSED_NOISE = 3.0, 6.0
"""Beyond this many times the noise of the judge's clock its time counts; beyond so many, the worker's was a lie."""
CONTENDED = 0.3
"""On a host where processes waited for a processor for a larger share of the time than this, a late answer may be the
machine's doing: the judge's clock counts, and nobody is accused."""
CHARGED_SHARE, CHARGED_NS = 0.5, 10_000_000.0
"""On a host nobody is accused for less than this share of the time and this much: schedulers wake processes late by
ticks of 1 to 10 ms. Nor is, on a GPU, who waits for it: launches that its queue has no room for take time of launched
calls and none of the others. The judge's clock counts long before, so a smaller lie gains nothing."""
NARROW_SHARE = 0.01
"""An interval whose ends are no further apart than this is not worth more calls: on a GPU, what differs from worker to
worker widens it by twice as much (`tools.measurement.PLACEMENT_SHARE` at each end)."""
NARROW_BLOCKS = 12
"""Fewer blocks a side say too little about how much blocks differ."""
NARROW_RESAMPLES = 1000
HOPELESS_SPEEDUP, HOPELESS_SHARE = 0.5, 0.1
"""A candidate that is slower than this is not worth knowing better than to this share."""
HOPELESS_BLOCKS = 6
"""With fewer blocks a side that is believed only where the clocks agree and noise hides no more than that share: nobody
is accused, and nobody gets away, by fewer calls."""
GREATLY = 3.0
"""A disagreement this many times as large as what is refused is no accident where it is there again."""
LATE_NS = 300_000.0
LAUNCHED_SHARE = 0.25
"""A GPU call whose judge's clock is off by more than this may have been started late by the GPU itself. It is judged by
calls that are launched after they got their inputs, whose launching may take as long, or this share of the time."""


def require_plausible(session: Session, samples: Samples, launch: Callable[[], Excess]) -> None:
    """Raise `CandidateFault` with `implausible_time` for an impossible time or clocks that disagree.

    Args:
        session: of the measurement.
        samples: what was measured.
        launch: measures `tools.measurement.launched_excess`; called only where that is needed.
    """
    median = median_ns(samples.candidate)
    machine, work = session.machine, session.workload
    least_ns = 0.0
    if machine.peak_flops_per_s is not None:
        least_ns = OPERATION_FLOOR_SHARE * 1e9 * work.flop_count / machine.peak_flops_per_s
    if session.target is Target.CUDA and machine.peak_bytes_per_s is not None:
        # The inputs lie in no cache and must be read; outputs may still be in the cache when the call ends.
        least_ns = max(least_ns, 1e9 * work.input_bytes / machine.peak_bytes_per_s)
    # Nothing takes no time, which clocks that are lied to can say once what their marks take is off.
    if median <= least_ns:
        raise CandidateFault(
            Verdict.IMPLAUSIBLE_TIME,
            f"the median time of {median / 1e3:.1f} us is below what is physically possible here "
            f"({least_ns / 1e3:.1f} us for {work.flop_count:.3g} operations and {work.input_bytes:.3g} input bytes).",
        )
    allowed = _refused_ns(session.target, samples)
    excess = samples.excess.ns
    if session.target is Target.CUDA and not samples.waits and excess > max(allowed, LATE_NS):
        launched = launch()
        excess = launched.ns
        allowed = _refused_launched_ns(median, launched)
    if _slows_the_baseline(session.target, samples):
        raise CandidateFault(
            Verdict.IMPLAUSIBLE_TIME,
            f"the GPU was at work beside the baseline's calls and not beside the candidate's: the judge waited "
            f"{-samples.excess.ns / 1e3:.1f} us longer for the baseline. Whatever a call starts must have ended when "
            "it returns and the device is synchronised.",
        )
    if excess > allowed and not _contended(session.target, samples):
        raise CandidateFault(
            Verdict.IMPLAUSIBLE_TIME,
            f"two clocks disagree: the device's events say {median / 1e3:.1f} us a call, the judge's own clock "
            f"{(median + excess) / 1e3:.1f} us. Work must be finished, on every stream, when forward returns and the "
            "device is synchronised.",
        )


def clocks_disagree(target: Target, samples: Samples) -> bool:
    """Whether the judge's clock would count, or accuse somebody."""
    return slower_clock_ns(target, samples) != median_ns(samples.candidate) or _slows_the_baseline(target, samples)


def _slows_the_baseline(target: Target, samples: Samples) -> bool:
    """Whether the GPU kept the judge itself waiting in the baseline's calls, and not in the candidate's.

    What a worker leaves running there takes turns with others, of milliseconds; it could end when its own call begins.
    """
    return target is Target.CUDA and -samples.excess.ns > max(LATE_NS, _refused_ns(target, samples))


def clocks_disagree_greatly(target: Target, samples: Samples) -> bool:
    """Whether they do so by several times what is refused: no wake-up is late by that much, again and again."""
    return samples.excess.ns > GREATLY * _refused_ns(target, samples)


def narrow(target: Target, samples: Samples) -> bool:
    """Whether more calls would tell nothing more: the ratio is known well, and noise hides nothing of the two clocks'
    disagreement that is not allowed anyway."""
    if min(map(min, samples.candidate)) <= 0:
        # No ratio can be had with times that no honest clock gives.
        return False
    interval = ratio_interval(samples.baseline, samples.candidate, NARROW_RESAMPLES)
    noise_ns = COUNTED_NOISE * samples.excess.noise_ns
    median, allowed = median_ns(samples.candidate), ALLOWED_NS[target]
    if interval.high < HOPELESS_SPEEDUP:
        clear = noise_ns <= max(HOPELESS_SHARE * median, allowed) and not clocks_disagree(target, samples)
        enough = clear or len(samples.candidate) >= HOPELESS_BLOCKS
        return enough and interval.high <= (1.0 + HOPELESS_SHARE) * interval.low
    known = interval.high <= (1.0 + NARROW_SHARE) * interval.low and len(samples.candidate) >= NARROW_BLOCKS
    return known and noise_ns <= max(ALLOWED_SHARE * median, allowed)


def slower_clock_ns(target: Target, samples: Samples) -> float:
    """The candidate's median by the clock that counts: the judge's where it disagrees with the worker's.

    Noise may hide whose fault a disagreement is. It must not hide time: a candidate can make noise. An excess so large
    that the GPU itself must have started the call late was judged by other calls.
    """
    median, excess = median_ns(samples.candidate), samples.excess.ns
    late = target is Target.CUDA and not samples.waits and excess > LATE_NS
    noise = 0.0 if _contended(target, samples) else COUNTED_NOISE
    return median + excess if excess > _allowed_ns(target, samples, noise) and not late else median


def _contended(target: Target, samples: Samples) -> bool:
    return target is Target.CPU and (samples.cpu_pressure or 0.0) > CONTENDED


def _refused_ns(target: Target, samples: Samples) -> float:
    """An excess beyond this is a lie."""
    allowed = _allowed_ns(target, samples, REFUSED_NOISE)
    if target is Target.CPU or samples.waits:
        allowed = max(allowed, CHARGED_SHARE * median_ns(samples.candidate), CHARGED_NS)
    return allowed


def _refused_launched_ns(median: float, launched: Excess) -> float:
    return max(LATE_NS, LAUNCHED_SHARE * median, REFUSED_NOISE * launched.noise_ns)


def _allowed_ns(target: Target, samples: Samples, noise: float) -> float:
    median = median_ns(samples.candidate)
    return max(ALLOWED_SHARE * median, ALLOWED_NS[target], noise * samples.excess.noise_ns)


def disturbance(target: Target, samples: Samples, card: CardState | None) -> str:
    """What else used the machine, in words for a person; empty where nothing was noticed."""
    if _contended(target, samples):
        return f"processes waited for a processor during {samples.cpu_pressure:.0%} of the measurement"
    if card is not None and card.other_processes:
        return f"{card.other_processes} other processes were using the GPU"
    return ""
