"""What waits in an evaluation pool, and for whom: jobs for any machine, built ones for the lanes of theirs."""

import itertools
import queue
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tools.jobs import Answered, Job, JobTask, Role, Span
from tools.members import Member
from tools.results import BuildResult

MOST_PASSED_OVER = 200
"""A job of a task that no lane is ready for waits for so many later ones, some minutes."""

Results = queue.SimpleQueue[Answered | BaseException]


class Site(Protocol):
    """One machine of a pool."""

    @property
    def name(self) -> str:
        """Empty for the only machine there is."""
        ...

    @property
    def lanes(self) -> Sequence[str]:
        """The name of each lane, such as `cuda:0`."""
        ...

    @property
    def builders(self) -> int:
        """How many there are."""
        ...

    def start(self, role: Role, number: int, /) -> Member:
        """Start one of its processes; raises SiteLostError where the machine is gone."""
        ...


@dataclass
class Running:
    """A job on its way through the pool; one thread at a time has it."""

    job: Job
    results: Results
    abandoned: threading.Event
    """Set when nobody waits for the result any more."""
    attempts: int = 1
    build: BuildResult | None = None
    spans: list[Span] = field(default_factory=list)
    passed_over: int = 0
    """How often a lane took another job that was built later."""


@dataclass
class SiteState:
    """What a machine has in hand."""

    site: Site
    in_hand: int = 0
    built: deque[Running] = field(default_factory=deque)
    to_get_ready: deque[Job] = field(default_factory=deque)
    """One for each lane that may get ready while the first candidates are built."""
    lanes_told: int = 0
    ready_for: dict[int, set[JobTask]] = field(default_factory=dict)
    """The tasks that each lane, by its number, has a warm judge for."""
    lost: bool = False

    @property
    def room(self) -> int:
        """How many jobs may be in hand at once: twice as many as are worked on, so that no lane waits for a build
        while the lanes are what limits the pool."""
        return 2 * (self.site.builders + len(self.site.lanes))


class PoolQueue:
    """Gives each thread of the pool its next job."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = [SiteState(site) for site in sites]
        self.closing = False
        self._changed = threading.Condition()
        self._to_build: deque[Running] = deque()
        self._to_ask: deque[Running] = deque()
        """For the lane of any machine: what needs no builder."""

    @property
    def room(self) -> int:
        """How many jobs all machines together have room for."""
        with self._changed:
            return sum(state.room for state in self.sites if not state.lost)

    def put(self, running: Running) -> None:
        """Add a job."""
        with self._changed:
            (self._to_build if running.job.begins_with == "builder" else self._to_ask).append(running)
            self._changed.notify_all()

    def take(self, state: SiteState, role: Role, number: int) -> Running | Job | None:
        """What the process of this role and number does next, for a lane also a job to get ready for; None when there
        will be nothing more."""
        with self._changed:
            while not (self.closing or state.lost):
                taken = self._next_to_build(state) if role == "builder" else self._next_of_lane(state, number)
                if taken is not None:
                    return taken
                self._changed.wait()
            return None

    def _next_to_build(self, state: SiteState) -> Running | None:
        while self._to_build and state.in_hand < state.room:
            running = self._to_build.popleft()
            if running.abandoned.is_set():
                continue
            state.in_hand += 1
            if state.lanes_told < len(state.site.lanes):
                state.lanes_told += 1
                state.to_get_ready.append(running.job)
                self._changed.notify_all()
            return running
        return None

    def _next_of_lane(self, state: SiteState, number: int) -> Running | Job | None:
        ready_for = state.ready_for.setdefault(number, set())
        taken = self._next_to_evaluate(state, ready_for)
        if taken is not None:
            ready_for.add(taken.task if isinstance(taken, Job) else taken.job.task)
        return taken

    def _next_to_evaluate(self, state: SiteState, ready_for: set[JobTask]) -> Running | Job | None:
        if state.to_get_ready:
            return state.to_get_ready.popleft()
        while self._to_ask:
            running = self._to_ask.popleft()
            if not running.abandoned.is_set():
                state.in_hand += 1
                return running
        while state.built:
            # The baselines of another task take as long as several evaluations of one that they are known for. It does
            # not wait for ever, however many of that one come.
            at = 0
            if state.built[0].passed_over < MOST_PASSED_OVER:
                at = next((at for at, running in enumerate(state.built) if running.job.task in ready_for), 0)
            for earlier in itertools.islice(state.built, at):
                earlier.passed_over += 1
            running = state.built[at]
            del state.built[at]
            if not running.abandoned.is_set():
                return running
            state.in_hand -= 1
            self._changed.notify_all()
        return None

    def has_built(self, state: SiteState, running: Running) -> None:
        """A builder is done with a job: it waits for a lane of the same machine."""
        with self._changed:
            if state.lost:
                self._again([running])
            else:
                state.built.append(running)
            self._changed.notify_all()

    def finished(self, state: SiteState) -> None:
        """A machine is done with a job."""
        with self._changed:
            state.in_hand -= 1
            self._changed.notify_all()

    def lose(self, state: SiteState, running: Running | None = None) -> bool:
        """A machine is gone: what it had in hand, and the job `running`, is built again elsewhere.

        Returns False where there is no machine left.
        """
        with self._changed:
            state.lost = True
            self._again([*([] if running is None else [running]), *state.built])
            state.built.clear()
            self._changed.notify_all()
            return not all(each.lost for each in self.sites)

    def _again(self, jobs: Sequence[Running]) -> None:
        for running in reversed(jobs):
            running.build = None
            (self._to_build if running.job.begins_with == "builder" else self._to_ask).appendleft(running)

    def close(self) -> None:
        """Give nobody anything more."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()
