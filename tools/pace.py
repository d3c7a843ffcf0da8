"""The pace to beat: times every PyTorch baseline once a session and keeps the fastest one warm."""

import contextlib
import fcntl
from collections.abc import Iterator

from tasks.errors import HarnessError
from tools.baselines import COMPILED, EAGER, baseline_candidates
from tools.cache import Hold, cache_root, claimed
from tools.candidate import Candidate
from tools.results import Baseline
from tools.session import Session
from tools.statistics import median_ns
from tools.subject import Limits
from tools.timer import Timer, start_timer, warm_up
from tools.workers import CandidateFault

LIMITS = Limits(load_s=300.0, call_s=600.0)
"""A baseline may compile for minutes on its first call."""
ROUNDS = 8
MOVED_CLOCK = 0.05
"""Once the multiprocessors' clock is another by this share, all baselines are timed anew for the next candidate. The
one that a candidate is compared with is timed beside it anyway."""
CALLS = 2
"""In each round every baseline is called so often, so that a disturbance meets all of them alike."""


class Pace:
    """The baselines of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._prepared: dict[str, Timer] = {}
        """Those that have been called, and are not timed yet."""
        self._failed: dict[str, Baseline] = {}
        self._fastest: Timer | None = None
        self._clocks_mhz: list[int | None] = []
        """Of the GPU when all were timed, and in the measurement that was the reason."""
        self._moved_to_mhz: int | None = None
        self.fastest_name = ""
        self.baselines: tuple[Baseline, ...] = ()
        """Every baseline with its median; empty until `fastest` was called."""

    def fastest(self) -> Timer:
        """The fastest baseline, ready to be timed; the first call times them all, which takes a while.

        Raises:
            HarnessError: not even eager PyTorch could be timed.
            UnavailableError: the target cannot run on this machine.
        """
        if self._fastest is None:
            self._time_all()
        assert self._fastest is not None
        return self._fastest

    def prepare(self) -> None:
        """Start every baseline and call it once, which compiles it. Nothing is timed: where that needs a quiet machine,
        this does not. On a GPU it does, because what is called first tries out which kernels are the quickest.

        Raises as `fastest`.
        """
        if self._fastest is not None:
            return
        self._drop_ended()
        others = baseline_candidates(self._session.task, self._session.target)
        compiled = others.pop(COMPILED)
        lock = compiling(compiled, waiting=False)
        if lock is not None:
            with lock:
                self._start(COMPILED, compiled)
        # Who finds it being compiled by another lane has the others ready meanwhile.
        for name, candidate in others.items():
            self._start(name, candidate)
        if lock is None:
            self._session.progress("waiting: another process is compiling the same baseline")
            with compiling(compiled) or contextlib.nullcontext():
                self._start(COMPILED, compiled)

    def _drop_ended(self) -> None:
        """Those that were prepared a while ago may have been ended by whoever needed memory."""
        for name, timer in list(self._prepared.items()):
            if timer.subject.worker.server.ended(timer.subject.worker.number):
                self._prepared.pop(name).close()

    def _start(self, name: str, candidate: Candidate) -> None:
        if name in self._prepared or name in self._failed:
            return
        self._session.progress(f"preparing the baseline: {name}")
        with self._failing(name):
            self._prepared[name] = start_timer(self._session, candidate, LIMITS, trusted=True, watch=True)
            self._prepared[name].call()

    def _time_all(self) -> None:
        # What failed while others were building is tried again.
        self._failed.clear()
        try:
            self.prepare()
            for name, timer in list(self._prepared.items()):
                with self._failing(name):
                    warm_up(timer)
                    self._note_warm()
            names = baseline_candidates(self._session.task, self._session.target)
            try:
                medians = _interleaved_medians({name: self._prepared[name] for name in names if name in self._prepared})
            except CandidateFault as fault:
                # Asked for before a candidate is timed, which is not to blame.
                raise HarnessError(f"a baseline failed while all were timed: {fault.message}") from fault
            self.fastest_name = min(medians, key=lambda name: medians[name])
            self._fastest = self._prepared.pop(self.fastest_name)
        finally:
            failed = tuple(self._failed.values())
            self._end_prepared()
        card = self._session.card
        self._clocks_mhz = [self._moved_to_mhz, None if card is None else card.sm_clock_mhz()]
        self._moved_to_mhz = None
        timed = tuple(Baseline(name=name, median_ns=median) for name, median in medians.items())
        self.baselines = (*timed, *failed)

    def _note_warm(self) -> None:
        # By baselines alone: a candidate could leave the GPU idle while it is warmed up.
        if self._session.card is not None:
            self._session.card.note_warm()

    @contextlib.contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """Keep what was said where a baseline cannot be had; all others can do without it but eager PyTorch."""
        try:
            yield
        except CandidateFault as fault:
            if name == EAGER:
                raise HarnessError(f"the baseline {name} could not be timed: {fault.message}") from fault
            if name in self._prepared:
                self._prepared.pop(name).close()
            self._failed[name] = Baseline(name=name, median_ns=None, note=fault.message[:500])

    def _end_prepared(self) -> None:
        while self._prepared:
            self._prepared.popitem()[1].close()
        self._failed.clear()

    @property
    def warm(self) -> int:
        """How many baselines' workers are kept."""
        return int(self._fastest is not None) + len(self._prepared)

    def note_clock(self, now_mhz: int | None) -> None:
        """Take the GPU's clock after a candidate's measurement into account: where it has moved, all baselines are
        timed anew for the next one. Not again where only candidates have another clock, and baselines the old one."""
        known = [mhz for mhz in self._clocks_mhz if mhz is not None]
        if now_mhz is not None and known and all(abs(now_mhz - mhz) > MOVED_CLOCK * mhz for mhz in known):
            self._session.progress(f"the GPU's clock has moved to {now_mhz} MHz: baselines are timed anew")
            self._moved_to_mhz = now_mhz
            self.close()

    def forget(self, timer: Timer) -> None:
        """Drop a baseline whose worker has died; all are timed anew when one is next needed."""
        if self._fastest is timer:
            self.close()

    def close(self) -> None:
        """End the workers of all baselines."""
        self._end_prepared()
        if self._fastest is not None:
            self._fastest.close()
            self._fastest = None


def compiling(baseline: Candidate, *, waiting: bool = True) -> contextlib.closing[Hold] | None:
    """The right to compile a baseline into the caches that all baselines share: who has it next finds it there.

    None where another process has it, unless that is waited for, and where the caches are gone or cannot be locked.
    """
    lock = cache_root() / "inductor" / f"compiling-{baseline.id[:16]}"
    with contextlib.suppress(OSError):
        held = claimed(lock, fcntl.LOCK_EX | (0 if waiting else fcntl.LOCK_NB))
        return None if held is None else contextlib.closing(held)
    return None


def _interleaved_medians(timers: dict[str, Timer]) -> dict[str, float]:
    samples: dict[str, list[int]] = {name: [] for name in timers}
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            # The first call after another process's has a colder machine; it is the same for all.
            samples[name] += [timer.call() for _ in range(CALLS)]
    return {name: median_ns((tuple(taken),)) for name, taken in samples.items()}
