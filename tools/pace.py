"""The pace to beat: times every PyTorch baseline once a session and keeps the fastest one warm."""

from tasks.errors import HarnessError
from tools.baselines import EAGER, baseline_candidates
from tools.results import Baseline
from tools.session import Session
from tools.statistics import median_ns
from tools.subject import Limits
from tools.timer import Timer, start_timer, warm_up
from tools.workers import CandidateFault

LIMITS = Limits(load_s=300.0, call_s=600.0)
"""A baseline may compile for minutes on its first call."""
ROUNDS = 8
CALLS = 2
"""In each round every baseline is called so often, so that a disturbance meets all of them alike."""


class Pace:
    """The baselines of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._fastest: Timer | None = None
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

    def _time_all(self) -> None:
        timers: dict[str, Timer] = {}
        try:
            failed = self._start_all(timers)
            try:
                medians = _interleaved_medians(timers)
            except CandidateFault as fault:
                # Asked for before a candidate is timed, which is not to blame.
                raise HarnessError(f"a baseline failed while all were timed: {fault.message}") from fault
            self.fastest_name = min(medians, key=lambda name: medians[name])
            self._fastest = timers.pop(self.fastest_name)
        finally:
            for timer in timers.values():
                timer.close()
        timed = tuple(Baseline(name=name, median_ns=median) for name, median in medians.items())
        self.baselines = (*timed, *failed)

    def _start_all(self, timers: dict[str, Timer]) -> list[Baseline]:
        """Warm every baseline up; returns those that could not be had."""
        failed = []
        for name, candidate in baseline_candidates(self._session.task, self._session.target).items():
            self._session.progress(f"preparing the baseline: {name}")
            try:
                timers[name] = start_timer(self._session, candidate, LIMITS, trusted=True, watch=True)
                warm_up(timers[name])
            except CandidateFault as fault:
                if name == EAGER:
                    raise HarnessError(f"the baseline {name} could not be timed: {fault.message}") from fault
                if name in timers:
                    timers.pop(name).close()
                failed.append(Baseline(name=name, median_ns=None, note=fault.message[:500]))
        return failed

    @property
    def warm(self) -> bool:
        """Whether the fastest baseline's worker is kept."""
        return self._fastest is not None

    def forget(self, timer: Timer) -> None:
        """Drop a baseline whose worker has died; all are timed anew when one is next needed."""
        if self._fastest is timer:
            self.close()

    def close(self) -> None:
        """End the worker of the fastest baseline."""
        if self._fastest is not None:
            self._fastest.close()
            self._fastest = None


def _interleaved_medians(timers: dict[str, Timer]) -> dict[str, float]:
    samples: dict[str, list[int]] = {name: [] for name in timers}
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            # The first call after another process's has a colder machine; it is the same for all.
            samples[name] += [timer.call() for _ in range(CALLS)]
    return {name: median_ns((tuple(taken),)) for name, taken in samples.items()}
