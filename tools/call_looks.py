"""Looks into timed calls of a worker from outside: it is stopped at random moments, and where its threads are is noted.

On the host target only. What records operators lives in the worker, where a candidate may replace it; this does not.
A call that is looked into is asked for like any other, at a moment that the judge draws, and does not count as a time.
Who notices the stop has been seen before.
"""

import contextlib
import ctypes
import os
import struct
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tools.code_origins import Origins
from tools.code_shares import Tally
from tools.draws import Draws
from tools.instruction_pointers import can_be_read, look, stopped
from tools.mappings import Mappings
from tools.workers import Worker

MOST_LOOKS, FEWEST_LOOKS = 20, 6
LOOKED_INTO_NS = 1_500_000_000
"""About how long the calls that are looked into may take together, beyond the fewest."""
LEAST_SHARE, MORE_LOOKS = 2, 3
"""Half of them must have found something at work, and be clear; for that at most three times as many are made. Of ten
a library that takes half of the time is in none once in 1,000 times, and one look that it is in calls for more."""
LOOKS_A_CALL = 4
"""As long as no thread was at work, as on a busy host, where threads wait for processors."""
SLICE_NS = 100_000
"""The shortest that Linux gives."""
_SCHED_SETATTR = 314
"""The number of that system call on x86-64."""
_ATTRIBUTES_BYTES = 48
"""Of struct sched_attr in its first version, whose field of a deadline's run time says the length of a slice."""
_REMEMBERED = 9
_GRAIN = 1 << 16
_NS = 1e-9


class CallLooks:
    """The looks at one worker's timed calls."""

    def __init__(self, worker: Worker, draws: Draws) -> None:
        """Raises OSError where the worker, which has no candidate yet, cannot be looked at."""
        self._worker = worker
        self._draws = draws
        self._origins = Origins(worker.pid)
        self._recent_ns: deque[int] = deque(maxlen=_REMEMBERED)
        self._tallies: list[Tally] = []
        self._first = self._later = Tally()
        """Of the present measurement: until enough was seen, and afterwards."""
        self._calls = self._later_calls = 0

    def begin_measurement(self) -> None:
        """Forget that enough was seen: each measurement is looked into from its beginning to its end."""
        self._first, self._later = Tally(), Tally()
        self._tallies += [self._first, self._later]
        self._calls = self._later_calls = 0

    @property
    def tally(self) -> Tally:
        """Of all measurements."""
        return Tally.of(self._tallies)

    @property
    def accusing(self) -> Tally | None:
        """The looks that accuse the candidate: in part of a measurement, or in all of them; None where none do."""
        return next((each for each in (*self._tallies, self.tally) if each.accuses), None)

    def note(self, wall_ns: int) -> None:
        """Take into account how long a call took that was not looked into."""
        self._recent_ns.append(wall_ns)

    @property
    def wanted(self) -> int:
        """How many calls are to be looked into, fewer where they are slow."""
        usual_ns = sorted(self._recent_ns)[len(self._recent_ns) // 2] if self._recent_ns else 1
        return max(FEWEST_LOOKS, min(MOST_LOOKS, LOOKED_INTO_NS // max(1, usual_ns)))

    @property
    def enough(self) -> bool:
        """Whether a measurement may end: enough was seen and is clear, or more would take too long."""
        return self._first_enough and (not self._later.unclear or self._later_calls >= MORE_LOOKS * self.wanted)

    @property
    def complete(self) -> bool:
        """Whether calls are to be looked into now and then only, in what is left of the measurement."""
        return self.enough and self._calls >= self.wanted

    @property
    def _first_enough(self) -> bool:
        seen = self._first.total >= max(FEWEST_LOOKS, self.wanted // LEAST_SHARE) and not self._first.unclear
        return seen or self._calls >= MORE_LOOKS * self.wanted

    @contextlib.contextmanager
    def into_call(self) -> Iterator[None]:
        """For the time of a call that is begun in the block: stop it at a random moment, and later once more as long as
        nothing was at work.

        In a thread that sleeps before the call begins: whoever has just begun it gets no processor as long as the
        worker, which has slept, needs all there are.
        """
        later = self._first_enough and self._calls >= self.wanted
        self._later_calls += later
        self._calls += not later
        answered = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            looking = thread.submit(self._look_until, answered, self._later if later else self._first)
            try:
                yield
            finally:
                answered.set()
            looking.result()

    def _look_until(self, answered: threading.Event, tally: Tally) -> None:
        _ask_for_short_slices()
        length_ns = self._recent_ns[self._draws.integer(0, len(self._recent_ns) - 1)] if self._recent_ns else 0
        left_s = _NS * length_ns
        for _ in range(LOOKS_A_CALL):
            wait_s = left_s * self._draws.integer(0, _GRAIN) / _GRAIN
            if answered.wait(wait_s) or self._look(tally):
                return
            left_s -= wait_s

    def _look(self, tally: Tally) -> bool:
        with stopped(self._worker.pid) as pids:
            found = look(pids)
            mappings: dict[int, Mappings] = {}
            places = []
            hidden = found.hidden
            for pid, address in found.points:
                try:
                    if pid not in mappings:
                        mappings[pid] = Mappings(pid)
                except (FileNotFoundError, ProcessLookupError):
                    continue
                except PermissionError:
                    hidden = True
                    continue
                place = self._origins.place(pid, address, mappings[pid], self._worker.libraries)
                places += [place] if place is not None else []
        return tally.add(places, hidden=hidden)


def _ask_for_short_slices() -> None:
    """Have this thread run as soon as it wakes: from Linux 6.12 on who asks for short slices of a processor's time gets
    the next one sooner. Elsewhere more looks come too late."""
    if os.uname().machine != "x86_64":
        return
    request = struct.pack("=IIQiIQQQ", _ATTRIBUTES_BYTES, os.SCHED_OTHER, 0, 0, 0, SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(_SCHED_SETATTR, 0, request, 0)


def looks_at(worker: Worker, draws: Draws) -> CallLooks | None:
    """The looks at a worker that has no candidate yet; None on a machine whose kernel does not tell."""
    return CallLooks(worker, draws) if can_be_read(worker.pid) else None
