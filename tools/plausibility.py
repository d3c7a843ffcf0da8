"""Refuses times that nothing honest can reach, and takes the judge's clock where the worker's disagrees."""

from tasks.spec import Target
from tools.measurement import Samples
from tools.session import Session
from tools.statistics import median_ns
from tools.verdict import Verdict
from tools.workers import CandidateFault

OPERATION_FLOOR_SHARE = 1.0 / 3.0
"""A fast algorithm may save operations (1-D Winograd F(2,3) 1.5 times, F(4,3) 2 times), so only a third of the
operation floor is impossible."""
ALLOWED_SHARE = 0.05
ALLOWED_NS = {Target.CUDA: 40_000.0, Target.CPU: 200_000.0}
NOISE_FACTOR = 6.0
"""The clocks disagree when the judge's exceeds the worker's by more than this share of the time and by more than this
much. Where it also does by more than this many times the noise of the judge's clock, it is not the machine's doing.
The judge's clock holds what it takes to wake a process and to copy the outputs; both sides of a measurement pay for
that, so only their difference counts."""


def require_plausible(session: Session, samples: Samples) -> None:
    """Raise `CandidateFault` with `implausible_time` for an impossible time or clocks that disagree."""
    median = median_ns(samples.candidate)
    machine, work = session.machine, session.workload
    least_ns = 0.0
    if machine.peak_flops_per_s is not None:
        least_ns = OPERATION_FLOOR_SHARE * 1e9 * work.flop_count / machine.peak_flops_per_s
    if session.target is Target.CUDA and machine.peak_bytes_per_s is not None:
        # The inputs lie in no cache and must be read; outputs may still be in the cache when the call ends.
        least_ns = max(least_ns, 1e9 * work.input_bytes / machine.peak_bytes_per_s)
    if median < least_ns:
        raise CandidateFault(
            Verdict.IMPLAUSIBLE_TIME,
            f"the median time of {median / 1e3:.1f} us is below what is physically possible here "
            f"({least_ns / 1e3:.1f} us for {work.flop_count:.3g} operations and {work.input_bytes:.3g} input bytes).",
        )
    if samples.wall_excess_ns > max(_allowance_ns(session.target, median), NOISE_FACTOR * samples.wall_noise_ns):
        raise CandidateFault(
            Verdict.IMPLAUSIBLE_TIME,
            f"two clocks disagree: the device's events say {median / 1e3:.1f} us a call, the judge's own clock "
            f"{(median + samples.wall_excess_ns) / 1e3:.1f} us. Work must be finished, on every stream, when forward "
            "returns and the device is synchronised.",
        )


def slower_clock_ns(target: Target, samples: Samples) -> float:
    """The candidate's median by the clock that counts: the judge's where it disagrees with the worker's.

    Noise may hide whose fault a disagreement is. It must not hide time: a candidate can make noise.
    """
    median = median_ns(samples.candidate)
    return median + samples.wall_excess_ns if samples.wall_excess_ns > _allowance_ns(target, median) else median


def _allowance_ns(target: Target, median: float) -> float:
    return max(ALLOWED_SHARE * median, ALLOWED_NS[target])
