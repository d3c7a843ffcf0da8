"""How fast is it: times a candidate against a baseline in interleaved blocks, and checks outputs of timed calls."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from tasks.errors import HarnessError
from tasks.spec import Target
from tools.comparison import LimitsOf
from tools.contention import CpuPressure
from tools.draws import Draws
from tools.results import Interval
from tools.statistics import Blocks, median_ns, ratio_interval, widened
from tools.timer import SLOW_NS, WARM_UP_NS, Timer, warm_up
from tools.workers import CandidateFault

LOOK_ROUNDS = 3
"""After so many more rounds the caller is asked whether what was measured is enough. A round is four blocks: baseline,
candidate, candidate, baseline. So many rounds of single calls are all there are where one takes longer than `SLOW_NS`.

In each such stretch the output of one timed call is compared with the float64 oracle; every one with PyTorch's."""
EARLY_ROUNDS = 2
"""A hopeless candidate is known as such after so many, so the caller is asked as soon as they are done, and
`LEAST_CALLS` too. The first call that is compared with the oracle is in one of these rounds."""
LEAST_CALLS = 20
"""A candidate is called at least so often, warm-up included, before a measurement may end. Who keeps an answer by the
address of its input has met one again by then. Where that would take long (`LONG_NS`) to learn how slow something is,
the calls that are missing are made on a small shape afterwards (`tools.many_calls`)."""
MAX_ROUNDS = 24
BLOCKS_A_SIDE = 2
"""In a round."""
MAX_BLOCK = 3
"""A block is one to this many calls, drawn by the judge."""
LONG_NS, LONG_FACTOR = 10_000_000, 2
"""A candidate whose calls all take longer than this, and so many times as long as the baseline's, is timed in blocks of
one call. The machine is as it is after one call that long, and nobody needs to know better how slow it is."""
PLACEMENT_NS = 200.0
PLACEMENT_SHARE = 0.01
"""Two workers with the same kernel may differ by this much a call on a GPU, or by this share of the time, in a way that
no repetition within them averages out. Measured on an H200 (benchmarks/README.md): a 22 us kernel by up to 0.16 us, one
of 586 us that reads and writes much memory by 1 %, its second copy nearly always the slower one."""
LAUNCHED_ROUNDS = 6
"""How often `launched_excess` calls: so many times two calls a side."""
_STANDARD_ERROR = 1.858
"""Of a median of n normal samples, times sqrt(n), over their median absolute deviation: 1.4826 * sqrt(pi / 2)."""


@dataclass(frozen=True)
class Excess:
    """By how much the judge's clock exceeds the worker's for the candidate, less the same of the baseline."""

    ns: float
    """Difference of the medians over calls."""
    noise_ns: float
    """Its standard error where both sides are as noisy as the baseline, which makes no noise on purpose."""


@dataclass(frozen=True)
class Samples:
    """The raw result of an interleaved measurement."""

    candidate: Blocks
    baseline: Blocks
    excess: Excess
    cpu_pressure: float | None
    """As of `CpuPressure.share`, over the whole measurement."""
    waits: bool = False
    """Whether most of the candidate's calls waited for the GPU, and could not be queued before their inputs."""


@contextlib.contextmanager
def _blaming_the_baseline() -> Iterator[None]:
    """A baseline that fails is our fault, never the candidate's that is measured beside it."""
    try:
        yield
    except CandidateFault as fault:
        raise HarnessError(f"the baseline failed during a measurement: {fault.message}") from fault


def _settle(timer: Timer, limits_of: LimitsOf, least_ns: int) -> None:
    """Warm up, check one timed call fully, and leave the timer with no wall times of these calls."""
    warm_up(timer, least_ns)
    timer.check_last(limits_of)
    timer.call()
    timer.check_last_quickly()
    timer.wall_over_device_ns.clear()


class _Course:
    """How long blocks are and how many rounds there are.

    All by what the judge's own clock says of the calls that were measured: a candidate that is slow before them, or
    says so, has no fewer calls, and one that is slow in some has as many as others.
    """

    def __init__(self, candidate: Timer, baseline: Timer) -> None:
        self.rounds = 0
        """How many are done."""
        self._candidate = candidate
        self._usual_ns = baseline.last_call_ns
        self._quickest_ns = candidate.last_call_ns
        self._quickest_whole_ns = candidate.last_checked_ns
        self._spent_ns = 0

    def note(self, timer: Timer) -> None:
        """Take the call into account that this side has just made."""
        self._spent_ns += timer.last_checked_ns
        if timer is self._candidate:
            self._quickest_ns = min(self._quickest_ns, timer.last_call_ns)
            self._quickest_whole_ns = min(self._quickest_whole_ns, timer.last_checked_ns)

    @property
    def longest_block(self) -> int:
        """The most calls of a block."""
        return 1 if self._quickest_ns > max(LONG_NS, LONG_FACTOR * self._usual_ns) or self._slow else MAX_BLOCK

    def looks_in_block(self, draws: Draws) -> int:
        """How many calls of the next block are to be looked into, about as many in each of the fewest rounds."""
        looks = self._candidate.looks
        if looks is None:
            return 0
        if looks.complete:
            return draws.integer(0, 1)
        blocks = BLOCKS_A_SIDE * self._fewest_rounds
        return looks.wanted // blocks + (draws.integer(0, blocks - 1) < looks.wanted % blocks)

    @property
    def _fewest_rounds(self) -> int:
        return LOOK_ROUNDS if self._slow else 2 * LOOK_ROUNDS

    @property
    def _seen_enough(self) -> bool:
        return self._candidate.looks is None or self._candidate.looks.enough

    @property
    def goes_on(self) -> bool:
        """Whether there is another round: always in the first ones and up to `LEAST_CALLS`, then as long as there is
        time for one more."""
        if self.rounds < self._fewest_rounds or not self._called_enough:
            return True
        if not self._seen_enough and self.rounds < MAX_ROUNDS:
            return True
        limit_ns = 1e9 * self._candidate.session.limits.rounds_s
        return self.rounds < MAX_ROUNDS and self._spent_ns * (self.rounds + 1) / self.rounds <= limit_ns

    @property
    def may_end(self) -> bool:
        """Whether the candidate was called often enough for the measurement to end early."""
        return self.rounds >= EARLY_ROUNDS and self._called_enough and self._seen_enough

    @property
    def _called_enough(self) -> bool:
        return self.longest_block == 1 or self._candidate.calls >= LEAST_CALLS

    @property
    def _slow(self) -> bool:
        return self._quickest_whole_ns > SLOW_NS


def _block(timer: Timer, order: Sequence[bool], course: _Course) -> tuple[int, ...]:
    """Call in this order, True being a call whose time counts; each is followed by the quick check of its output.

    Baselines are checked as well, so that both sides find the machine alike.
    """
    samples = []
    for counted in order:
        taken_ns = timer.call(counted=counted)
        timer.check_last_quickly()
        course.note(timer)
        if counted:
            samples.append(taken_ns)
    return tuple(samples)


def _order(calls: int, looks: int, draws: Draws, *, of_candidate: bool) -> list[bool]:
    """Which calls of a block count, drawn so that no candidate knows it of any.

    The first call after another process's finds a colder machine. It is one that does not count with the same
    probability on both sides, so that times of both hold as many such calls.
    """
    first = [draws.integer(0, 1) == 0] if looks else []
    if not of_candidate:
        return [*([False] if first == [False] else []), *[True] * calls]
    rest = [True] * (calls - (first == [True])) + [False] * (looks - (first == [False]))
    for last in range(len(rest) - 1, 0, -1):
        other = draws.integer(0, last)
        rest[last], rest[other] = rest[other], rest[last]
    return first + rest


def interleave(
    candidate: Timer, baseline: Timer, enough: Callable[[Samples], bool], undisturbed: Callable[[], None]
) -> Samples:
    """Measure in rounds of baseline, candidate, candidate, baseline, checking the output of every call.

    Args:
        candidate: what is measured.
        baseline: what it is measured beside.
        enough: told now and then what was measured up to now, says whether more rounds would tell nothing more.
        undisturbed: called when both are warm and before anything counts; returns once nothing else runs.

    Raises:
        CandidateFault: an output of a timed call is wrong, or the candidate's worker failed.
        HarnessError: the same of the baseline.
    """
    limits_of = LimitsOf(candidate.session.precision, 0.0)
    _settle(candidate, limits_of, WARM_UP_NS)
    with _blaming_the_baseline():
        # The clocks have settled, and this worker is no new one.
        _settle(baseline, limits_of, 0)
    undisturbed()
    if candidate.looks is not None:
        candidate.looks.begin_measurement()
    draws = candidate.session.draws
    course = _Course(candidate, baseline)
    pressure = CpuPressure()
    ours: list[tuple[int, ...]] = []
    theirs: list[tuple[int, ...]] = []

    def samples() -> Samples:
        excess = _excess(candidate.wall_over_device_ns, baseline.wall_over_device_ns)
        return Samples(tuple(ours), tuple(theirs), excess, pressure.share(), candidate.waits)

    checked = 0
    looked = False
    while course.goes_on:
        done = course.rounds
        if course.may_end and (not looked or done % LOOK_ROUNDS == 0):
            looked = True
            if enough(samples()):
                break
        if done % LOOK_ROUNDS == 0:
            checked = 2 * done + draws.integer(0, 2 * (LOOK_ROUNDS if done else EARLY_ROUNDS) - 1)
        for side in ("baseline", "candidate", "candidate", "baseline"):
            calls, looks = draws.integer(1, course.longest_block), course.looks_in_block(draws)
            order = _order(calls, looks, draws, of_candidate=side == "candidate")
            if side == "candidate":
                ours.append(_block(candidate, order, course))
                if len(ours) - 1 == checked:
                    candidate.check_last(limits_of)
            else:
                with _blaming_the_baseline():
                    theirs.append(_block(baseline, order, course))
        course.rounds += 1
    return samples()


def launched_excess(candidate: Timer, baseline: Timer, samples: Samples) -> Excess:
    """The same of calls that are launched after they got their inputs, so that the judge's clock holds the launching.

    A GPU looks at work that waits for something only every few milliseconds while several streams do: there a call
    that was queued ahead starts late, whatever it is.
    """
    walls: dict[str, list[int]] = {"candidate": [], "baseline": []}
    for _ in range(LAUNCHED_ROUNDS):
        for side in ("baseline", "candidate", "candidate", "baseline"):
            timer = candidate if side == "candidate" else baseline
            with contextlib.nullcontext() if side == "candidate" else _blaming_the_baseline():
                device_ns = timer.call(queued=False)
                timer.check_last_quickly()
            walls[side].append(timer.wall_over_device_ns[-1] + device_ns)
    ours, theirs = median_ns(samples.candidate), median_ns(samples.baseline)
    return _excess([wall - ours for wall in walls["candidate"]], [wall - theirs for wall in walls["baseline"]])


def speedup_interval(target: Target, samples: Samples, ours_ns: float, theirs_ns: float) -> Interval:
    """The interval of the speedup `theirs_ns / ours_ns`, where `ours_ns` is the candidate's time by the clock that
    counts."""
    sampled = ratio_interval(samples.baseline, samples.candidate)
    slower = median_ns(samples.candidate) / ours_ns
    counted = Interval(low=sampled.low * slower, high=sampled.high * slower)
    placement = 0.0
    if target is Target.CUDA:
        placement = max(PLACEMENT_SHARE, PLACEMENT_NS / min(ours_ns, theirs_ns))
    return widened(counted, placement)


def _excess(candidate: Sequence[float], baseline: Sequence[float]) -> Excess:
    ours, theirs = (torch.tensor(over, dtype=torch.float64) for over in (candidate, baseline))
    spread = float((theirs - theirs.median()).abs().median())
    return Excess(
        ns=float(ours.median() - theirs.median()),
        noise_ns=_STANDARD_ERROR * spread * math.sqrt(1 / ours.numel() + 1 / theirs.numel()),
    )
