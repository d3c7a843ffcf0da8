"""In which order the pool's queue gives jobs to lanes."""

import itertools
import threading
from queue import SimpleQueue

import pytest
from pool_stand_ins import Script

from tasks.loader import all_tasks
from tools.jobs import KEPT_TASKS, Job, Role
from tools.members import Member
from tools.pool_queue import GETTING_READY_JOBS, MOST_PASSED_OVER, PoolQueue, Running, SiteState


class TwoLanes:
    """A machine that nothing is started on."""

    name = ""
    lanes = ("cuda:0", "cuda:1")
    builders = 4

    def start(self, role: Role, number: int, /) -> Member:
        """Never asked."""
        raise NotImplementedError


def running(name: str, task: str) -> Running:
    return Running(Script(name=name).job(task), SimpleQueue(), threading.Event())


def test_a_lane_takes_what_it_is_ready_for_before_what_it_would_have_to_get_ready_for_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a cold start the first candidate of a second task, built a moment earlier, cost the first result ten seconds
    for that task's baselines."""
    # The last one is left to the other lane for so long.
    monkeypatch.setattr("tools.pool_queue.LEFT_S", 0.5)
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    causal, depthwise = running("a", "causal_conv"), running("b", "depthwise_separable")
    later = running("c", "causal_conv")
    for each in (causal, depthwise, later):
        queue.put(each)
    assert [queue.take(state, "builder", number) for number in range(3)] == [causal, depthwise, later]
    # Each lane gets ready for the task of one of the first jobs.
    assert [queue.take(state, "lane", number) for number in range(2)] == [causal.job, depthwise.job]
    for built in (depthwise, causal, later):
        queue.has_built(state, built)
    assert [queue.take(state, "lane", 0) for _ in range(3)] == [causal, later, depthwise]


def test_a_lane_that_is_ready_for_nothing_that_is_built_takes_what_was_built_first() -> None:
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    jobs = [running(name, "depthwise_separable") for name in "ab"]
    for each in jobs:
        queue.has_built(state, each)
    assert [queue.take(state, "lane", 0) for _ in range(2)] == jobs


def test_a_single_job_of_another_task_does_not_wait_for_all_that_keep_coming() -> None:
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    state.ready_for[0] = {running("known", "causal_conv").job.task: None}
    other = running("other", "depthwise_separable")
    queue.has_built(state, other)
    for number in range(MOST_PASSED_OVER):
        queue.has_built(state, running(f"more {number}", "causal_conv"))
        assert queue.take(state, "lane", 0) is not other
    queue.has_built(state, running("one more", "causal_conv"))
    assert queue.take(state, "lane", 0) is other


def test_a_task_that_a_lane_is_not_ready_for_waits_for_no_more_jobs_than_there_is_room_for() -> None:
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    queue.put(running("first", "causal_conv"))
    queue.put(running("other", "depthwise_separable"))
    taken = [queue.take(state, "builder", 0) for _ in range(2)]
    ready = queue.take(state, "lane", 0)
    assert isinstance(ready, Job)
    other = taken[1]
    for each in taken:
        assert isinstance(each, Running)
        queue.has_built(state, each)
    served: list[object] = []
    # Ever more of the first task come, alternating with more of the other, as far as there is room to build them.
    for number in range(200):
        queue.put(running(f"more {number}", ("causal_conv", "depthwise_separable")[number % 2]))
        if state.in_hand < state.room:
            made = queue.take(state, "builder", 0)
            assert isinstance(made, Running)
            queue.has_built(state, made)
        job = queue.take(state, "lane", 0)
        if isinstance(job, Running):
            served.append(job)
            queue.finished(state)
    assert other in served


def ready_lanes(queue: PoolQueue, *tasks: str) -> SiteState:
    """The machine, each of whose lanes is ready for one of these tasks."""
    (state,) = queue.sites
    state.ready_for |= {number: {running("known", task).job.task: None} for number, task in enumerate(tasks)}
    return state


class Clock:
    """Time that passes when it is told to."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("tools.pool_queue.time.monotonic", made.monotonic)
    return made


def taken_now(queue: PoolQueue, state: SiteState, number: int) -> Running | Job | None:
    """What a lane is given at once; None where it would wait."""
    return queue._next_of_lane(state, number)


def test_a_few_jobs_of_another_task_are_left_to_the_lane_that_is_ready_for_them(clock: Clock) -> None:
    """A lane spent the last 12 of 63 seconds on getting ready for a task of which it evaluated one candidate."""
    queue = PoolQueue([TwoLanes()])
    state = ready_lanes(queue, "causal_conv", "depthwise_separable")
    left = [running(str(number), "causal_conv") for number in range(GETTING_READY_JOBS)]
    for each in left:
        queue.has_built(state, each)
    assert taken_now(queue, state, 1) is None
    assert taken_now(queue, state, 0) is left[0]
    clock.now_s += 9
    assert taken_now(queue, state, 1) is None
    # The other lane is at something slow.
    clock.now_s += 2
    assert taken_now(queue, state, 1) is left[1]
    # Now it is ready, too.
    assert taken_now(queue, state, 1) is left[2]


@pytest.mark.usefixtures("clock")
def test_many_jobs_of_another_task_are_worth_getting_ready_for() -> None:
    queue = PoolQueue([TwoLanes()])
    state = ready_lanes(queue, "causal_conv", "depthwise_separable")
    jobs = [running(str(number), "causal_conv") for number in range(GETTING_READY_JOBS + 1)]
    for each in jobs:
        queue.has_built(state, each)
    assert taken_now(queue, state, 1) is jobs[0]


@pytest.mark.usefixtures("clock")
def test_what_is_still_to_be_built_counts_for_it() -> None:
    queue = PoolQueue([TwoLanes()])
    state = ready_lanes(queue, "causal_conv", "depthwise_separable")
    only = running("built", "causal_conv")
    queue.has_built(state, only)
    for number in range(GETTING_READY_JOBS):
        queue.put(running(str(number), "causal_conv"))
    assert taken_now(queue, state, 1) is only


@pytest.mark.usefixtures("clock")
def test_a_task_whose_only_ready_lane_has_ended_is_taken_at_once() -> None:
    queue = PoolQueue([TwoLanes()])
    state = ready_lanes(queue, "causal_conv", "depthwise_separable")
    job = running("alone", "causal_conv")
    queue.has_built(state, job)
    assert taken_now(queue, state, 1) is None
    queue.forgets(state, 0)
    assert taken_now(queue, state, 1) is job


def test_lanes_get_ready_for_every_task_while_nothing_is_built_and_for_each_once() -> None:
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    for number, task in enumerate(2 * GETTING_READY_JOBS * ("causal_conv", "depthwise_separable")):
        queue.put(running(str(number), task))
    told = [taken_now(queue, state, number) for number in (0, 1, 0, 1, 0, 1)]
    assert [isinstance(job, Job) and job.task.name for job in told] == [
        *("causal_conv", "depthwise_separable", "depthwise_separable", "causal_conv"),
        *(False, False),
    ]
    # What ended a lane's process would end it again.
    queue.forgets(state, 0)
    assert taken_now(queue, state, 0) is None


def test_as_many_lanes_get_ready_for_a_task_as_there_are_jobs_of_it() -> None:
    """Of several models that work on one task each has a candidate built at first, and no job waits for a builder."""
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    for number in range(2):
        queue.put(running(str(number), "causal_conv"))
        assert isinstance(queue.take(state, "builder", number), Running)
    assert all(isinstance(taken_now(queue, state, number), Job) for number in (0, 1))


def test_a_lane_gets_ready_for_nothing_that_others_are_ready_for_and_that_is_done_soon() -> None:
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    queue.put(running("only", "causal_conv"))
    assert isinstance(taken_now(queue, state, 0), Job)
    assert taken_now(queue, state, 1) is None


def test_a_lane_is_taken_to_be_ready_for_no_more_tasks_than_its_process_keeps() -> None:
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    names = [task.name for task in all_tasks()]
    assert len(names) > KEPT_TASKS
    for name in names[: KEPT_TASKS + 1]:
        queue.has_built(state, running(name, name))
        assert isinstance(taken_now(queue, state, 0), Running)
    assert [task.name for task in state.ready_for[0]] == names[1 : KEPT_TASKS + 1]


def batch_s(clock: Clock, ready_s: dict[str, float], job_s: dict[str, float], jobs: int) -> tuple[float, list[int]]:
    """How long two lanes take for jobs of two tasks in turns, all built, and how many each lane evaluates."""
    queue = PoolQueue([TwoLanes()])
    (state,) = queue.sites
    names = itertools.islice(itertools.cycle(job_s), jobs)
    for number, name in enumerate(names):
        queue.has_built(state, running(str(number), name))
    start_s = clock.now_s
    free_s, done = [start_s, start_s], [0, 0]
    known: tuple[set[str], set[str]] = (set(), set())
    ended_s = start_s
    while state.built:
        number = min((0, 1), key=free_s.__getitem__)
        clock.now_s = free_s[number]
        taken = taken_now(queue, state, number)
        if taken is None:
            free_s[number] += 1.0
            continue
        assert isinstance(taken, Running)
        name = taken.job.task.name
        free_s[number] += job_s[name] + (0 if name in known[number] else ready_s[name])
        known[number].add(name)
        done[number] += 1
        ended_s = max(ended_s, free_s[number])
    return ended_s - start_s, done


def test_two_lanes_share_what_the_slower_task_leaves_and_neither_ends_late(clock: Clock) -> None:
    """Times as measured on two H200s: 1.35 and 1.05 s for an evaluation, and 4 s to get ready for a second task."""
    ready_s, job_s = (
        {"causal_conv": 4.0, "depthwise_separable": 4.0},
        {"causal_conv": 1.35, "depthwise_separable": 1.05},
    )
    for jobs in (8, 16, 64, 65, 70):
        took_s, _ = batch_s(clock, ready_s, job_s, jobs)
        # Each lane at one task, or all shared evenly when both are ready for both.
        half = jobs // 2
        alone_s = 4.0 + (jobs - half) * 1.35
        shared_s = 8.0 + (half * 1.05 + (jobs - half) * 1.35) / 2
        assert took_s <= min(alone_s, shared_s) + 2.0
