"""In which order the pool's queue gives jobs to lanes."""

import threading
from queue import SimpleQueue

from pool_stand_ins import Script

from tools.jobs import Job, Role
from tools.members import Member
from tools.pool_queue import MOST_PASSED_OVER, PoolQueue, Running


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


def test_a_lane_takes_what_it_is_ready_for_before_what_it_would_have_to_get_ready_for_first() -> None:
    """At a cold start the first candidate of a second task, built a moment earlier, cost the first result ten seconds
    for that task's baselines."""
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
