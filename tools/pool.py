"""The evaluation pool: builds on all cores, measurements one at a time on each device, whatever ends meanwhile.

Jobs wait to be built; builders take them as long as their machine has room, and what is built waits for a lane of the
same machine. A thread stands for each process. A process that ends costs its job an attempt, and is started again; a
machine that is lost costs nothing but time, because its jobs go to the others.
"""

import contextlib
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import NamedTuple, Self

from tasks.errors import HarnessError, StoppedError
from tools.briefing import Briefing
from tools.jobs import (
    Answer,
    Answered,
    Ask,
    BriefingAnswer,
    BuildAnswer,
    Evaluated,
    EvaluationAnswer,
    Job,
    Role,
    Span,
    ToolAnswer,
    in_order,
    lane_spans,
)
from tools.members import Member, MemberEndedError, SiteLostError
from tools.pool_queue import PoolQueue, Results, Running, Site, SiteState
from tools.results import Built, Evaluation, ToolResult

ATTEMPTS = 2
"""How many processes may end during one job before it is given up as our fault."""


class _Place(NamedTuple):
    """Which process a thread stands for."""

    site: int
    role: Role
    number: int


class Pool:
    """Evaluates jobs on its machines; a context manager, because it holds processes."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._queue = PoolQueue(sites)
        self._members: dict[_Place, Member] = {}
        self._lock = threading.Lock()
        """Of `_members`, and of closing."""
        self._broken: BaseException | None = None
        self._waiting: set[Results] = set()
        """Of the calls of `evaluate` and `ask` that go on, each of which is told of the pool's end."""
        places = [
            _Place(at, role, number)
            for at, site in enumerate(sites)
            for role, count in _roles(site)
            for number in range(count)
        ]
        self._threads = [threading.Thread(target=self._stand_for, args=(place,), daemon=True) for place in places]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes of the pool, whatever they are doing."""
        self.hang_up()
        with self._lock:
            members = list(self._members.values())
        enders = [threading.Thread(target=member.close) for member in members]
        for thread in enders:
            thread.start()
        for thread in (*enders, *self._threads):
            thread.join()

    def hang_up(self) -> None:
        """Take nothing more, and have nobody wait any longer; the processes are ended by `close`."""
        with self._lock:
            self._queue.close()
        self._tell_all(StoppedError("the pool of evaluations was closed"))

    def evaluate(self, jobs: Iterable[Job]) -> Generator[Evaluated, None, None]:
        """Evaluate jobs; results come as they are found. No more jobs are taken than the pool has room for.

        Raises:
            HarnessError: every machine was lost.
        """
        with self._expecting() as (results, abandoned):
            unfinished = 0
            for job in jobs:
                if self._broken is not None:
                    raise self._broken
                self._queue.put(Running(job, results, abandoned))
                unfinished += 1
                while unfinished and (unfinished >= self._queue.room or not results.empty()):
                    yield _evaluated(_next(results))
                    unfinished -= 1
            for _ in range(unfinished):
                yield _evaluated(_next(results))

    def ask(self, job: Job) -> Answered:
        """Have one question answered; any number of threads may ask at once.

        Raises:
            StoppedError: the pool was closed, or hung up, meanwhile.
            HarnessError: every machine was lost.
        """
        with self._expecting() as (results, abandoned):
            self._queue.put(Running(job, results, abandoned))
            return _next(results)

    @contextlib.contextmanager
    def _expecting(self) -> Iterator[tuple[Results, threading.Event]]:
        """Where results are to be put within the block, and what is set when nobody waits for them any more."""
        results: Results = SimpleQueue()
        abandoned = threading.Event()
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._queue.closing:
                raise StoppedError("the pool of evaluations was closed before")
            self._waiting.add(results)
        try:
            yield results, abandoned
        finally:
            abandoned.set()
            with self._lock:
                self._waiting.discard(results)

    def _tell_all(self, error: BaseException) -> None:
        with self._lock:
            waiting = list(self._waiting)
        for results in waiting:
            results.put(error)

    def _stand_for(self, place: _Place) -> None:
        """The life of one thread: have its process do what there is to do."""
        state = self._queue.sites[place.site]
        try:
            while (taken := self._queue.take(state, place.role, place.number)) is not None:
                if isinstance(taken, Job):
                    self._get_ready(place, taken)
                elif place.role == "builder":
                    self._build(place, state, taken)
                else:
                    self._evaluate(place, state, taken)
        except BaseException as error:
            # Raised here it would reach nobody, and the caller would wait for ever.
            self._break(error)
        finally:
            self._drop(place)

    def _get_ready(self, place: _Place, job: Job) -> None:
        try:
            self._member(place).ask(Ask(job=job, only_get_ready=True))
        except MemberEndedError:
            # The first job that needs it will tell.
            self._drop(place)
        except SiteLostError:
            self._lose(place)

    def _build(self, place: _Place, state: SiteState, running: Running) -> None:
        started_s = time.time()
        answer = self._asked(place, state, running)
        if isinstance(answer, ToolAnswer):
            self._finish(state, running, answer.result)
        if not isinstance(answer, BuildAnswer):
            return
        build, job = answer.result, running.job
        where, ended_s = self._where(place), time.time()
        running.spans.append(
            Span(stage="build", where=where, candidate=build.candidate, started_s=started_s, ended_s=ended_s)
        )
        if job.question == "compile":
            self._finish(state, running, build)
        elif isinstance(build, Built):
            running.build = build
            self._queue.has_built(state, running)
        else:
            found = Evaluation(candidate=build.candidate, task=job.task.name, target=job.target, build=build)
            self._finish(state, running, found)

    def _evaluate(self, place: _Place, state: SiteState, running: Running) -> None:
        answer = self._asked(place, state, running)
        if isinstance(answer, EvaluationAnswer):
            running.spans += lane_spans(answer.result, self._where(place), time.time())
        if isinstance(answer, EvaluationAnswer | ToolAnswer):
            self._finish(state, running, answer.result, answer.device_seconds)
        elif isinstance(answer, BriefingAnswer):
            self._finish(state, running, answer.result)

    def _asked(self, place: _Place, state: SiteState, running: Running) -> Answer | None:
        """A process's answer; None where the job went elsewhere, or is finished as our fault."""
        try:
            while True:
                try:
                    return self._member(place).ask(Ask(job=running.job, build=running.build))
                except MemberEndedError as error:
                    if self._queue.closing:
                        return None
                    self._drop(place)
                    # Where the whole machine is gone it was not this job's doing.
                    self._member(place)
                    if running.attempts == ATTEMPTS:
                        message = f"{ATTEMPTS} processes of the pool ended in this evaluation; the {place.role} {error}"
                        self._finish(state, running, running.job.failed(message))
                        return None
                    running.attempts += 1
        except SiteLostError:
            self._lose(place, running)
            return None

    def _finish(
        self, state: SiteState, running: Running, result: ToolResult | Briefing, device_seconds: float = 0.0
    ) -> None:
        answered = Answered(
            job=running.job.id,
            result=result,
            device_seconds=device_seconds,
            spans=in_order(running.spans),
            attempts=running.attempts,
        )
        self._queue.finished(state)
        running.results.put(answered)

    def _lose(self, place: _Place, running: Running | None = None) -> None:
        if not self._queue.lose(self._queue.sites[place.site], running):
            self._break(HarnessError("every machine of the pool was lost. What is missing can be evaluated anew."))

    def _break(self, error: BaseException) -> None:
        with self._lock:
            self._broken = error
        self._tell_all(error)

    def _where(self, place: _Place) -> str:
        site = self._queue.sites[place.site].site
        own = site.lanes[place.number] if place.role == "lane" else f"builder:{place.number}"
        return f"{site.name} {own}" if site.name else own

    def _member(self, place: _Place) -> Member:
        """The process of a thread, started where there is none."""
        member = self._members.get(place)
        if member is None:
            member = self._queue.sites[place.site].site.start(place.role, place.number)
            with self._lock:
                self._members[place] = member
                if self._queue.closing:
                    raise MemberEndedError("the pool is being closed")
        return member

    def _drop(self, place: _Place) -> None:
        with self._lock:
            member = self._members.pop(place, None)
        if member is not None:
            member.close()
            if place.role == "lane":
                self._queue.forgets(self._queue.sites[place.site], place.number)


def _roles(site: Site) -> tuple[tuple[Role, int], ...]:
    return ("builder", site.builders), ("lane", len(site.lanes))


def _next(results: Results) -> Answered:
    found = results.get()
    if isinstance(found, BaseException):
        raise found
    return found


def _evaluated(answered: Answered) -> Evaluated:
    assert isinstance(answered.result, Evaluation)
    return Evaluated(job=answered.job, evaluation=answered.result, spans=answered.spans, attempts=answered.attempts)
