"""What waits in an evaluation pool, and for whom: jobs for any machine, built ones for the lanes of theirs."""

import itertools
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tools.jobs import KEPT_TASKS, Answered, Job, JobTask, Role, Span
from tools.members import Member
from tools.results import BuildResult

MOST_PASSED_OVER = 200
"""A job of a task that no lane is ready for waits for so many later ones, some minutes."""
GETTING_READY_JOBS = 4
"""Timing a task's baselines takes as long as about so many evaluations (on an H200 8 s, half of which is compiling them
for the first time, and 1.1 s). No more jobs than that, for each lane that is ready for them, are left to those."""
LEFT_S = 10.0
"""And no longer than this: such a lane may be busy with something slow. What is left so long, and then not, takes twice
as long as it had to at most, for getting ready takes about as long."""

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
    left_since_s: float | None = None
    """Since when a lane that had nothing else to do has left it to those that are ready for it."""


@dataclass
class SiteState:
    """What a machine has in hand."""

    site: Site
    in_hand: int = 0
    built: deque[Running] = field(default_factory=deque)
    told: dict[int, set[JobTask]] = field(default_factory=dict)
    """The tasks that each lane was told to get ready for: what ends its process is not tried again."""
    ready_for: dict[int, dict[JobTask, None]] = field(default_factory=dict)
    """The tasks that each lane, by its number, has a warm judge for or is getting one, the last used at the end."""
    lost: bool = False

    def lanes_ready(self, task: JobTask) -> int:
        """How many lanes have a warm judge for a task, or are getting one."""
        return sum(task in ready_for for ready_for in self.ready_for.values())

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
        self._known: dict[JobTask, Job] = {}
        """The first job of each task that builders are given; lanes get ready for them while candidates are built."""
        self._seen: Counter[JobTask] = Counter()
        """How many jobs of each there were."""

    @property
    def room(self) -> int:
        """How many jobs all machines together have room for."""
        with self._changed:
            return sum(state.room for state in self.sites if not state.lost)

    def put(self, running: Running) -> None:
        """Add a job."""
        with self._changed:
            if running.job.begins_with == "builder":
                self._to_build.append(running)
                self._known.setdefault(running.job.task, running.job)
                self._seen[running.job.task] += 1
            else:
                self._to_ask.append(running)
            self._changed.notify_all()

    def take(self, state: SiteState, role: Role, number: int) -> Running | Job | None:
        """What the process of this role and number does next, for a lane also a job to get ready for; None when there
        will be nothing more."""
        with self._changed:
            while not (self.closing or state.lost):
                taken = self._next_to_build(state) if role == "builder" else self._next_of_lane(state, number)
                if taken is not None:
                    return taken
                # A lane that has left something to others looks again.
                self._changed.wait(LEFT_S / 10 if role == "lane" and state.built else None)
            return None

    def _next_to_build(self, state: SiteState) -> Running | None:
        while self._to_build and state.in_hand < state.room:
            running = self._to_build.popleft()
            if running.abandoned.is_set():
                continue
            state.in_hand += 1
            return running
        return None

    def _next_of_lane(self, state: SiteState, number: int) -> Running | Job | None:
        ready_for = state.ready_for.setdefault(number, {})
        taken = self._next_to_evaluate(state, ready_for) or self._to_get_ready_for(state, number, ready_for)
        if taken is not None:
            task = taken.task if isinstance(taken, Job) else taken.job.task
            ready_for.pop(task, None)
            ready_for[task] = None
            if len(ready_for) > KEPT_TASKS:
                ready_for.pop(next(iter(ready_for)))
        return taken

    def _next_to_evaluate(self, state: SiteState, ready_for: Collection[JobTask]) -> Running | None:
        while self._to_ask:
            running = self._to_ask.popleft()
            if not running.abandoned.is_set():
                state.in_hand += 1
                return running
        self._drop_abandoned(state)
        at = self._of_ready(state, ready_for)
        if at is None:
            return None
        for earlier in itertools.islice(state.built, at):
            earlier.passed_over += 1
        running = state.built[at]
        del state.built[at]
        return running

    def _of_ready(self, state: SiteState, ready_for: Collection[JobTask]) -> int | None:
        """Which of what is built a lane takes that is ready for these tasks."""
        # The baselines of another task take as long as several evaluations of one that they are known for. It does not
        # wait for ever, however many of that one come.
        at = next((at for at, running in enumerate(state.built) if running.job.task in ready_for), None)
        if at is not None:
            return 0 if state.built[0].passed_over >= MOST_PASSED_OVER else at
        waiting = Counter(running.job.task for running in (*state.built, *self._to_build))
        for at, running in enumerate(state.built):
            if waiting[running.job.task] > state.lanes_ready(running.job.task) * GETTING_READY_JOBS:
                return at
            # Lanes that are ready will sooner have done what is left, unless they are busy with something slow.
            running.left_since_s = running.left_since_s or time.monotonic()
            if time.monotonic() - running.left_since_s >= LEFT_S:
                return at
        return None

    def _drop_abandoned(self, state: SiteState) -> None:
        kept = [running for running in state.built if not running.abandoned.is_set()]
        if len(kept) < len(state.built):
            state.in_hand -= len(state.built) - len(kept)
            state.built = deque(kept)
            self._changed.notify_all()

    def _to_get_ready_for(self, state: SiteState, number: int, ready_for: Collection[JobTask]) -> Job | None:
        """What a lane that has nothing to do gets ready for while candidates are built: the task that fewest lanes are
        ready for, each task once."""
        told = state.told.setdefault(number, set())
        if state.built or len(ready_for) >= KEPT_TASKS:
            return None
        waiting = Counter(running.job.task for running in self._to_build)
        lacking = []
        for at, (task, job) in enumerate(self._known.items()):
            lanes = state.lanes_ready(task)
            # A lane that is ready for nothing has nothing else to do: one job for each lane makes that worth it.
            worth = waiting[task] > GETTING_READY_JOBS * lanes if ready_for else self._seen[task] > lanes
            if task not in told and task not in ready_for and (worth or not lanes):
                lacking.append((lanes, at, job))
        if not lacking:
            return None
        _, _, job = min(lacking)
        told.add(job.task)
        return job

    def forgets(self, state: SiteState, number: int) -> None:
        """A lane's process has ended, with its judges."""
        with self._changed:
            state.ready_for.pop(number, None)
            self._changed.notify_all()

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
