"""Times one candidate, call by call, and checks the outputs of those calls.

A worker runs only while the judge's own clock runs: between calls it is stopped, and its inputs are written then. So
there is no moment in which a candidate knows a call's inputs and is not timed.
"""

import time
from dataclasses import dataclass, field

import torch

from tasks.spec import Target
from tools.accuracy import Limits
from tools.call_looks import CallLooks, looks_at
from tools.candidate import Candidate
from tools.comparison import LimitsOf, compare, compare_quickly, require_unchanged
from tools.draws import Draws
from tools.fresh_inputs import CacheFlush, FreshInputs
from tools.library_compute import require_own_code, require_own_operators
from tools.oracle import Filled
from tools.replies import Done
from tools.session import Session
from tools.subject import ADDRESS_SLACK, MOST_HELD, Named, Returned, Subject
from tools.subject import Limits as TimeLimits
from tools.verdict import Verdict
from tools.workers import CandidateFault

WARM_UP_CALLS = 4
WARM_UP_NS = 200_000_000
"""Calls before the first block, at least this many and at least this long, so that clocks have settled. On a GPU not so
long where its clock is already what a warm-up that long has brought it to before."""
UNGATED_CALLS = 2
"""The first calls on a GPU compile, load and allocate, which may wait for the GPU: they are not queued ahead."""
LONG_WARM_UP_CALLS, LONG_WARM_UP_NS = 2, 20_000_000
"""On a GPU, so many calls in a row that each take longer than this have settled the clocks: it was busy all the time. A
first one alone may have loaded something."""
SLOW_NS = 500_000_000
"""From here on a call is slow: few of them must do."""
QUICK_FACTOR = 3.0
"""PyTorch's answer is within a quarter of a limit of the oracle, the candidate's within the limit; the rest is margin
for what luck may add on other inputs."""
_WHERE = "a timed call on the benchmark shape"
_ALIGNMENT = 256
PLACES = 4
"""In each of the sets that inputs take turns in (`tools.subject.INPUT_SETS`) they lie at one of so few places, drawn
once: after five calls a set an address comes again, for certain and not by luck, with other values."""


@dataclass
class Timer:
    """One subject being timed: its worker, its parameters, and every sample taken so far."""

    session: Session
    subject: Subject
    state: dict[str, torch.Tensor]
    prepare_ns: int
    reference: Filled
    fresh: FreshInputs
    flush: CacheFlush
    wall_over_device_ns: list[int] = field(default_factory=list)
    """For each call, the judge's wall time less the device time that the worker reported."""
    last_call_ns: int = 0
    """How long the last call took with all that belongs to it, from when its worker was ready for its inputs."""
    last_checked_ns: int = 0
    """The same from when it was asked for, with the quick check of its output."""
    _last_ready_ns: int = 0
    """How long the worker took to be ready."""
    last_done: Done | None = None
    _returned: Returned | None = None
    """What the last call left behind, in memory of the judge's own; on the host once it was asked for."""
    loose: list[Limits] = field(default_factory=list)
    """Widened limits of each output, from the last full check."""
    _given: list[torch.Tensor] = field(default_factory=list)
    """The last call's inputs, in memory of the judge's own: the worker could change those that it was given."""
    calls: int = 0
    """How often it was called, warm-up included."""
    _places: tuple[int, ...] = ()
    """By how many bytes inputs may be moved within their set."""
    _gated_calls: int = 0
    _waiting_calls: int = 0
    looks: CallLooks | None = None
    """At calls that do not count; None on a GPU, and where nobody asks."""

    @property
    def waits(self) -> bool:
        """Whether most calls that were to be queued ahead waited for the GPU instead."""
        return 2 * self._waiting_calls > self._gated_calls

    def call(self, *, queued: bool = True, counted: bool = True) -> int:
        """Time one call on inputs that have never been seen before; returns nanoseconds of the device's clock, less
        what it shows for a call that does nothing.

        Args:
            queued: on a GPU, queue the whole call before its inputs are handed over.
            counted: whether its time counts; if not, the worker is looked at meanwhile.
        """
        began = time.perf_counter_ns()
        session, subject, worker = self.session, self.subject, self.subject.worker
        self.calls += 1
        self._draw_inputs()
        gated = queued and session.device == "cuda" and self.calls > UNGATED_CALLS
        self._places = self._places or _drawn_places(session.draws)
        at = self._places[session.draws.integer(0, len(self._places) - 1)]
        held = session.draws.integer(0, MOST_HELD)
        state = session.updated_state(self.state)
        worker.resume()
        try:
            places = subject.begin_timed(self.fresh.like, state, at, held, gated=gated)
            self._gated_calls += gated
            self._waiting_calls += not subject.ready
            worker.pause()
            self._last_ready_ns = time.perf_counter_ns() - began
            prepared_ns = self._hand_over(places)
            started = time.perf_counter_ns()
            worker.resume()
            done = subject.finish_timed(None if self.looks is None or counted else self.looks.into_call())
            self._take_outputs(done)
            wall_ns = time.perf_counter_ns() - started
        finally:
            worked_on_ns = worker.pause()
        if session.device == "cpu":
            # On a GPU the judge's clock holds what was taken of it. Here outputs are read next, from a worker that
            # stands, and what it did between its answer and its stop counts.
            wall_ns += worked_on_ns
            self._returned = None
        if counted:
            self.wall_over_device_ns.append(prepared_ns + wall_ns - done.ns)
            if self.looks is not None:
                self.looks.note(wall_ns)
        self.last_done = done
        self.last_call_ns = time.perf_counter_ns() - began - self._last_ready_ns
        return done.ns - session.marks_ns

    def _draw_inputs(self) -> None:
        """Make the next inputs where no worker reads them; on a GPU while the worker gets ready."""
        recipe = self.fresh.draw()
        if self._given:
            self.fresh.write(recipe, self._given)
        else:
            self._given = self.fresh.made(recipe)

    def _hand_over(self, places: list[torch.Tensor]) -> int:
        """Write the inputs while the worker is stopped; returns the nanoseconds that count.

        They do on a GPU, which cannot be stopped: what a worker left running there slows the judge's own kernels.
        """
        session = self.session
        session.synchronize()
        started = time.perf_counter_ns()
        for place, given in zip(places, self._given, strict=True):
            place.copy_(given)
        self.subject.poison_timed(session.workload.output_bytes + session.state_bytes)
        self.flush.run()
        session.synchronize()
        return time.perf_counter_ns() - started if session.device == "cuda" else 0

    def _take_outputs(self, done: Done) -> None:
        """On a GPU copy the outputs at once, while the judge's clock runs. A GPU works on while its worker is stopped,
        and that it is done is the worker's word: either this copy waits for what is left, or that is missing in it."""
        if self.session.device == "cuda":
            # The last call's make room for these.
            self._returned = None
            self._returned = self.subject.returned_by_last_timed(done)
            self.session.synchronize()

    def check_last(self, limits_of: LimitsOf) -> None:
        """Compare the last timed call's output with the oracle on the inputs it was given.

        Raises:
            CandidateFault: `stale_output` where the output is wrong, `input_mutated` where an input was changed.
        """
        inputs, returned = self._last()
        answer = self.reference.answer([value for _, value in inputs])
        compare(returned, answer, limits_of, _WHERE, Verdict.STALE_OUTPUT)
        self.loose = [limits_of.output(answer, index).loosened(QUICK_FACTOR) for index in range(len(answer.exact))]

    def check_last_quickly(self) -> None:
        """Compare the last timed call's output with PyTorch's own answer, which costs as much as one more call.

        The limits are those of the last full check, widened because PyTorch's answer has rounding of its own: this
        finds outputs of other inputs and parts that were not computed, in every single call.
        """
        began = time.perf_counter_ns()
        inputs, returned = self._last()
        working = self.reference.working([value for _, value in inputs])
        compare_quickly(returned, working, self.loose, _WHERE)
        self.last_checked_ns = self._last_ready_ns + self.last_call_ns + time.perf_counter_ns() - began

    def require_own_operators(self) -> None:
        """Raise `CandidateFault` with `library_compute` where PyTorch computed in a timed call, or was not watched."""
        self.subject.worker.resume()
        done = self.subject.report()
        if done.marks != self.calls:
            raise CandidateFault(
                Verdict.LIBRARY_COMPUTE,
                f"the recording of PyTorch's operators held {done.marks} of {self.calls} timed calls: something in "
                "the candidate ended or replaced it. Leave PyTorch's profiler alone.",
            )
        require_own_operators(done.computing, "in timed calls")

    def require_own_code(self) -> None:
        """Raise `CandidateFault` with `library_compute` where looks have found other code than the candidate's."""
        if self.looks is not None:
            require_own_code(self.looks.accusing)

    def _last(self) -> tuple[Named, Returned]:
        assert self.last_done is not None
        names = [name for name, _ in self.fresh.like]
        inputs = list(zip(names, self._given, strict=True))
        if self._returned is None:
            self._returned = self.subject.returned_by_last_timed(self.last_done)
        require_unchanged(self._returned, inputs, _WHERE)
        return inputs, self._returned

    def close(self) -> None:
        """End the worker."""
        self.subject.close()


def _drawn_places(draws: Draws) -> tuple[int, ...]:
    """Some of all places, no two the same."""
    left = list(range(0, ADDRESS_SLACK, _ALIGNMENT))
    return tuple(left.pop(draws.integer(0, len(left) - 1)) for _ in range(PLACES))


def start_timer(
    session: Session,
    candidate: Candidate,
    limits: TimeLimits | None = None,
    *,
    trusted: bool = False,
    watch: bool = False,
) -> Timer:
    """Bring a candidate to where it can be timed on the benchmark shape; `watch` is for `require_own_operators` and
    `require_own_code`."""
    # Measured before there is a candidate, which could keep the GPU at work meanwhile.
    _ = session.marks_ns
    sizes = session.task.facts.benchmark_sizes(session.target)
    subject = session.subject(candidate, session.memory_bytes(sizes), limits=limits, trusted=trusted)
    try:
        if not trusted:
            # While this one gets ready and warms up, the next candidate's starts.
            session.start_ahead()
        # Before the candidate is loaded.
        looked_at = session.target is Target.CPU and watch and not trusted
        looks = looks_at(subject.worker, session.draws) if looked_at else None
        state = session.draws.state(session.oracle.template)
        prepare_ns = session.ready(subject, state)
        subject.stage(
            state_bytes=2 * session.state_bytes,
            input_bytes=session.input_bytes(sizes),
            output_bytes=session.workload.output_bytes + session.state_bytes,
            watch=watch,
            in_place=session.device == "cpu" and not session.server.memory_refusal,
        )
        fresh = FreshInputs(session.task.facts.inputs, sizes, session.draws)
    except BaseException:
        subject.close()
        raise
    reference = session.oracle.with_state(state)
    return Timer(session, subject, state, prepare_ns, reference, fresh, session.cache_flush, looks=looks)


def warm_up(timer: Timer, least_ns: int = WARM_UP_NS) -> None:
    """Call until the clocks have settled: at least so often and so long, but never many times where calls are slow."""
    started = time.perf_counter_ns()
    card = timer.session.card
    calls = long = 0
    while calls < WARM_UP_CALLS or time.perf_counter_ns() - started < least_ns:
        if calls >= WARM_UP_CALLS and card is not None and card.is_warm():
            return
        timer.call()
        calls += 1
        long = long + 1 if timer.last_call_ns > LONG_WARM_UP_NS else 0
        if timer.last_call_ns > SLOW_NS or (timer.session.device == "cuda" and long == LONG_WARM_UP_CALLS):
            return
