"""How fast is it: times a candidate against a baseline in interleaved blocks, and checks outputs of timed calls."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from tasks.errors import HarnessError
from tools.accuracy import Limits
from tools.candidate import Candidate
from tools.comparison import LimitsOf, compare, compare_quickly, require_unchanged
from tools.draws import USUAL, channel_shape, input_shape
from tools.replies import Done
from tools.session import Session
from tools.statistics import Blocks
from tools.subject import Limits as TimeLimits
from tools.subject import Named, Returned, Subject
from tools.verdict import Verdict
from tools.workers import CandidateFault

WARM_UP_CALLS = 4
WARM_UP_NS = 200_000_000
"""Calls before the first block, at least this many and at least this long, so that clocks have settled."""
MIN_ROUNDS, MAX_ROUNDS = 6, 24
"""A round is four blocks: baseline, candidate, candidate, baseline."""
ROUND_BUDGET_S = 3.0
"""About how long all rounds together may take beyond the fewest."""
SLOW_NS = 500_000_000
SLOW_ROUNDS = 3
"""Where one call takes longer than `SLOW_NS`, so many rounds of single calls tell enough."""
MAX_BLOCK = 3
"""A block is one to this many calls, drawn by the judge."""
PLACEMENT_NS = 300.0
"""Two workers with the same kernel may differ by this much a call on a GPU, in a way that no repetition within them
averages out: where their memory happens to lie. Measured on an H200 with a 22 us kernel (benchmarks/README.md): ratios
of 0.988 to 1.000 that turn round when the two swap roles."""
FULL_CHECKS = 4
"""How many timed calls' outputs are compared with the float64 oracle; every call's is compared with PyTorch's."""
QUICK_FACTOR = 3.0
"""PyTorch's answer is within a quarter of a limit of the oracle, the candidate's within the limit; the rest is margin
for what luck may add on other inputs."""
_STANDARD_ERROR = 1.858
"""Of a median of n normal samples, times sqrt(n), over their median absolute deviation: 1.4826 * sqrt(pi / 2)."""
_WHERE = "a timed call on the benchmark shape"


@dataclass
class Timer:
    """One subject being timed: its worker, its parameters, and every sample taken so far."""

    session: Session
    subject: Subject
    state: dict[str, torch.Tensor]
    prepare_ns: int
    wall_over_device_ns: list[int] = field(default_factory=list)
    """For each call, the judge's wall time less the device time that the worker reported."""
    last_wall_ns: int = 0
    last_done: Done | None = None
    loose: list[Limits] = field(default_factory=list)
    """Widened limits of each output, from the last full check."""

    def call(self) -> int:
        """Time one call on inputs that have never been seen before; returns nanoseconds of the device's clock."""
        session, draws = self.session, self.session.draws
        refreshes = []
        sizes = session.task.facts.benchmark_sizes(session.target)
        for spec in session.task.facts.inputs:
            shape = input_shape(spec, sizes)
            per_channel = channel_shape(shape, spec.channel_dim)
            scale = draws.host_uniform(per_channel, 0.5, 1.5)
            low = 0.0 if spec.domain == "nonnegative" else -0.5
            shift = draws.host_uniform(per_channel, low, 0.5)
            refreshes.append((draws.integer(0, max(0, shape[-1] - 1)) if shape else 0, scale, shift))
        # A worker runs only while it is asked: what it left running can slow no other's call, nor finish its own later.
        self.subject.worker.resume()
        try:
            started = time.perf_counter_ns()
            done = self.subject.timed(refreshes, session.updated_state(self.state), draws.integer(0, 15) * 256)
            self.last_wall_ns = time.perf_counter_ns() - started
        finally:
            self.subject.worker.pause()
        self.wall_over_device_ns.append(self.last_wall_ns - done.ns)
        self.last_done = done
        return done.ns

    def check_last(self, limits_of: LimitsOf) -> None:
        """Compare the last timed call's output with the oracle on the inputs it was given.

        Raises:
            CandidateFault: `stale_output` where the output is wrong, `input_mutated` where an input was changed.
        """
        inputs, returned = self._last()
        answer = self.session.oracle.answer(inputs, self.state)
        named: Named = [(spec.name, value) for spec, value in zip(self.session.task.facts.inputs, inputs, strict=True)]
        require_unchanged(returned, named, _WHERE)
        compare(returned, answer, limits_of, _WHERE, Verdict.STALE_OUTPUT)
        self.loose = [limits_of.output(answer, index).loosened(QUICK_FACTOR) for index in range(len(answer.exact))]

    def check_last_quickly(self) -> None:
        """Compare the last timed call's output with PyTorch's own answer, which costs as much as one more call.

        The limits are those of the last full check, widened because PyTorch's answer has rounding of its own: this
        finds outputs of other inputs and parts that were not computed, in every single call.
        """
        inputs, returned = self._last()
        compare_quickly(returned, self.session.oracle.working(inputs, self.state), self.loose, _WHERE)

    def _last(self) -> tuple[list[torch.Tensor], Returned]:
        assert self.last_done is not None
        return self.subject.inputs_of_last_timed(), self.subject.returned_by_last_timed(self.last_done)

    def close(self) -> None:
        """End the worker."""
        self.subject.close()


@dataclass(frozen=True)
class Samples:
    """The raw result of an interleaved measurement."""

    candidate: Blocks
    baseline: Blocks
    wall_excess_ns: float
    """Median over calls of (wall - device) of the candidate, less the same of the baseline."""
    wall_noise_ns: float
    """Standard error of the excess where both sides are as noisy as the baseline, which makes no noise on purpose."""


def start_timer(
    session: Session, candidate: Candidate, limits: TimeLimits | None = None, *, trusted: bool = False
) -> Timer:
    """Bring a candidate to where it can be timed on the benchmark shape."""
    draws, facts = session.draws, session.task.facts
    sizes = facts.benchmark_sizes(session.target)
    subject = session.subject(candidate, session.memory_bytes(sizes), limits=limits, trusted=trusted)
    try:
        state = draws.state(session.oracle.template)
        prepare_ns = session.ready(subject, state)
        bases = [(spec.name, draws.input(spec, input_shape(spec, sizes), USUAL)) for spec in facts.inputs]
        subject.stage(bases, flush_bytes=2 * session.machine.cache_bytes)
    except BaseException:
        subject.close()
        raise
    return Timer(session, subject, state, prepare_ns)


def warm_up(timer: Timer) -> None:
    """Call until the clocks have settled: at least so often and so long, but never many times where calls are slow."""
    started = time.perf_counter_ns()
    calls = 0
    while calls < WARM_UP_CALLS or time.perf_counter_ns() - started < WARM_UP_NS:
        timer.call()
        calls += 1
        if timer.last_wall_ns > SLOW_NS:
            return


@contextlib.contextmanager
def _blaming_the_baseline() -> Iterator[None]:
    """A baseline that fails is our fault, never the candidate's that is measured beside it."""
    try:
        yield
    except CandidateFault as fault:
        raise HarnessError(f"the baseline failed during a measurement: {fault.message}") from fault


def _settle(timer: Timer, limits_of: LimitsOf) -> None:
    """Warm up, check one timed call fully, and leave the timer with no wall times of these calls."""
    warm_up(timer)
    timer.check_last(limits_of)
    timer.call()
    timer.wall_over_device_ns.clear()


def _block(timer: Timer, calls: int) -> tuple[int, ...]:
    """Time some calls, each followed by the quick check of its output.

    Baselines are checked as well, so that both sides find the machine alike.
    """
    samples = []
    for _ in range(calls):
        samples.append(timer.call())
        timer.check_last_quickly()
    return tuple(samples)


def interleave(candidate: Timer, baseline: Timer) -> Samples:
    """Measure in rounds of baseline, candidate, candidate, baseline, checking the output of every call.

    Raises:
        CandidateFault: an output of a timed call is wrong, or the candidate's worker failed.
        HarnessError: the same of the baseline.
    """
    limits_of = LimitsOf(candidate.session.precision, 0.0)
    with _blaming_the_baseline():
        _settle(baseline, limits_of)
    _settle(candidate, limits_of)
    draws = candidate.session.draws
    slow = candidate.last_wall_ns > SLOW_NS
    longest = 1 if slow else MAX_BLOCK
    # A round holds two blocks a side, of (1 + longest) / 2 calls on average.
    cost_s = (candidate.last_wall_ns + baseline.last_wall_ns) * (1 + longest) / 1e9
    least = SLOW_ROUNDS if slow else MIN_ROUNDS
    rounds = int(min(MAX_ROUNDS, max(least, ROUND_BUDGET_S / cost_s)))
    checked = {draws.integer(0, 2 * rounds - 1) for _ in range(FULL_CHECKS)}
    ours: list[tuple[int, ...]] = []
    theirs: list[tuple[int, ...]] = []
    for _ in range(rounds):
        for side in ("baseline", "candidate", "candidate", "baseline"):
            calls = draws.integer(1, longest)
            if side == "candidate":
                ours.append(_block(candidate, calls))
                if len(ours) - 1 in checked:
                    candidate.check_last(limits_of)
            else:
                with _blaming_the_baseline():
                    theirs.append(_block(baseline, calls))
    over = torch.tensor(candidate.wall_over_device_ns, dtype=torch.float64)
    base = torch.tensor(baseline.wall_over_device_ns, dtype=torch.float64)
    return Samples(
        candidate=tuple(ours),
        baseline=tuple(theirs),
        wall_excess_ns=float(over.median() - base.median()),
        wall_noise_ns=_STANDARD_ERROR
        * float((base - base.median()).abs().median())
        * math.sqrt(1 / over.numel() + 1 / base.numel()),
    )
