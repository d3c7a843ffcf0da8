"""The pace to beat: times every PyTorch baseline once a session and keeps the fastest one warm."""

from tasks.errors import HarnessError
from tools.baselines import EAGER, baseline_candidates
from tools.candidate import Candidate
from tools.measurement import Timer, start_timer, warm_up
from tools.results import Baseline
from tools.session import Session
from tools.statistics import median_ns
from tools.subject import Limits
from tools.workers import CandidateFault

LIMITS = Limits(load_s=300.0, call_s=600.0)
"""A baseline may compile for minutes on its first call."""
CALLS = 12


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
        found: list[Baseline] = []
        best_ns = float("inf")
        for name, candidate in baseline_candidates(self._session.task, self._session.target).items():
            self._session.progress(f"timing the baseline: {name}")
            try:
                timer, median = self._time(candidate)
            except CandidateFault as fault:
                if name == EAGER:
                    raise HarnessError(f"the baseline {name} could not be timed: {fault.message}") from fault
                found.append(Baseline(name=name, median_ns=None, note=fault.message[:500]))
                continue
            found.append(Baseline(name=name, median_ns=median))
            if median < best_ns:
                self.close()
                self._fastest, self.fastest_name, best_ns = timer, name, median
            else:
                timer.close()
        self.baselines = tuple(found)

    def _time(self, candidate: Candidate) -> tuple[Timer, float]:
        timer = start_timer(self._session, candidate, LIMITS, trusted=True)
        try:
            warm_up(timer)
            return timer, median_ns((tuple(timer.call() for _ in range(CALLS)),))
        except BaseException:
            timer.close()
            raise

    def forget(self, timer: Timer) -> None:
        """Drop a baseline whose worker has died; all are timed anew when one is next needed."""
        if self._fastest is timer:
            self.close()

    def close(self) -> None:
        """End the worker of the fastest baseline."""
        if self._fastest is not None:
            self._fastest.close()
            self._fastest = None
