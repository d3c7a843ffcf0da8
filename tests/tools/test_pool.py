"""The evaluation pool's processes and its order of work, with a judge that does what it is told."""

import fcntl
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_stand_ins import DIES_GETTING_READY, JUDGE, UNREADY_JUDGE, Orders, Script
from processes import ROOT, descendants, running, within

from tasks.errors import HarnessError
from tasks.spec import Target
from tools.jobs import Evaluated, Job, Role
from tools.local_site import local_site
from tools.members import Member, MemberProcess, SiteLostError, remove_stale_folders
from tools.pool import Pool
from tools.pool_queue import GETTING_READY_JOBS
from tools.verdict import Verdict

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("KERNELWRIGHT_LEASES", str(tmp_path / "leases"))


def pool_of(lanes: int = 1, builders: int = 1, said: list[str] | None = None) -> Pool:
    progress = [] if said is None else said
    return Pool([local_site(Target.CPU, progress.append, lanes=lanes, builders=builders, judge=JUDGE)])


def verdicts(found: list[Evaluated], jobs: list[Job]) -> list[Verdict]:
    """In the order of the jobs."""
    by_job = {each.job: each.evaluation.verdict for each in found}
    return [by_job[job.id] for job in jobs]


def spans(found: list[Evaluated], stage: str) -> dict[str, list[tuple[float, float]]]:
    """When a stage ran, by where."""
    there: dict[str, list[tuple[float, float]]] = {}
    for span in itertools.chain.from_iterable(each.spans for each in found):
        if span.stage == stage:
            there.setdefault(span.where, []).append((span.started_s, span.ended_s))
    return {where: sorted(times) for where, times in there.items()}


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def test_each_job_has_its_result_and_faults_of_the_build_need_no_lane() -> None:
    jobs = [
        Script(name="right").job(),
        Script(name="wrong", evaluate=Orders(verdict=Verdict.INCORRECT)).job(),
        Script(name="unbuilt", build=Orders(verdict=Verdict.BUILD_FAILED)).job(),
    ]
    with pool_of() as pool:
        found = list(pool.evaluate(jobs))
    assert verdicts(found, jobs) == [Verdict.CORRECT, Verdict.INCORRECT, Verdict.BUILD_FAILED]
    stages = {each.evaluation.verdict: [(span.stage, span.where) for span in each.spans] for each in found}
    assert stages[Verdict.CORRECT] == [("build", "builder:0"), ("verify", "cpu:0")]
    assert stages[Verdict.BUILD_FAILED] == [("build", "builder:0")]
    assert {each.attempts for each in found} == {1}


def test_a_judge_that_fails_while_it_gets_ready_costs_no_job_an_attempt() -> None:
    jobs = [Script(name=f"right {number}").job() for number in range(3)]
    site = local_site(Target.CPU, print, lanes=1, builders=1, judge=UNREADY_JUDGE)
    with Pool([site]) as pool:
        found = list(pool.evaluate(jobs))
    assert verdicts(found, jobs) == [Verdict.CORRECT] * 3
    assert {each.attempts for each in found} == {1}


def test_lanes_work_at_the_same_time_and_each_at_one_candidate() -> None:
    jobs = [Script(name=str(number), evaluate=Orders(sleep_s=0.4)).job() for number in range(6)]
    with pool_of(lanes=2) as pool:
        found = list(pool.evaluate(jobs))
    lanes = spans(found, "verify")
    assert set(lanes) == {"cpu:0", "cpu:1"}
    for times in lanes.values():
        assert not any(overlap(one, other) for one, other in itertools.pairwise(times))
    assert any(overlap(one, other) for one in lanes["cpu:0"] for other in lanes["cpu:1"])


def test_lanes_that_share_a_device_take_turns_and_say_so() -> None:
    said: list[str] = []
    jobs = [Script(name=str(number), evaluate=Orders(sleep_s=0.4, device="cuda")).job() for number in range(4)]
    started = time.monotonic()
    with pool_of(lanes=2, said=said) as pool:
        found = list(pool.evaluate(jobs))
    assert time.monotonic() - started > 4 * 0.4
    assert verdicts(found, jobs) == 4 * [Verdict.CORRECT]
    assert set(said) <= {f"cpu:{lane}: waiting: another process is measuring on cuda" for lane in (0, 1)}
    assert said


def test_candidates_are_built_while_others_are_evaluated() -> None:
    jobs = [
        Script(name=str(number), build=Orders(sleep_s=0.3), evaluate=Orders(sleep_s=0.3)).job() for number in range(4)
    ]
    with pool_of() as pool:
        found = list(pool.evaluate(jobs))
    assert any(
        overlap(built, verified)
        for built in spans(found, "build")["builder:0"]
        for verified in spans(found, "verify")["cpu:0"]
    )


@pytest.mark.parametrize("stage", ["build", "evaluate"])
def test_a_process_that_is_killed_costs_a_second_attempt(stage: str, tmp_path: Path) -> None:
    orders = {stage: Orders(dies_once=str(tmp_path / "died"))}
    jobs = [Script(name="unlucky", **orders).job(), Script(name="other").job()]
    with pool_of() as pool:
        found = list(pool.evaluate(jobs))
    assert verdicts(found, jobs) == [Verdict.CORRECT, Verdict.CORRECT]
    assert {each.job: each.attempts for each in found} == {jobs[0].id: 2, jobs[1].id: 1}


@pytest.mark.parametrize("stage", ["build", "evaluate"])
def test_a_job_that_ends_its_process_every_time_is_our_fault_and_costs_no_other(stage: str) -> None:
    jobs = [Script(name="fatal", **{stage: Orders(dies=True)}).job(), *(Script(name=name).job() for name in "abc")]
    with pool_of() as pool:
        found = list(pool.evaluate(jobs))
    assert verdicts(found, jobs) == [Verdict.HARNESS_ERROR, *3 * [Verdict.CORRECT]]
    (message,) = (each.evaluation.message for each in found if each.job == jobs[0].id)
    role = "builder" if stage == "build" else "lane"
    assert message == (
        f"2 processes of the pool ended in this evaluation; the {role} was killed by signal 9; "
        "it said last: about to die"
    )


def test_a_lane_that_ends_while_it_gets_ready_is_told_to_once_for_each_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told again and again, it would end again and again, and evaluate nothing."""
    told = tmp_path / "told"
    monkeypatch.setenv(DIES_GETTING_READY, str(told))
    jobs = [
        Script(name=f"{task} {number}", build=Orders(sleep_s=1.0)).job(task)
        for number in range(2)
        for task in ("causal_conv", "depthwise_separable")
    ]
    with pool_of(builders=2) as pool:
        found = list(pool.evaluate(jobs))
    assert verdicts(found, jobs) == 4 * [Verdict.CORRECT]
    assert {each.attempts for each in found} == {1}
    assert sorted(told.read_text().split()) in (["causal_conv", "depthwise_separable"], ["causal_conv"])


def test_two_lanes_end_a_batch_together_although_each_began_with_a_task_of_its_own() -> None:
    """One lane waited for the other, which had all of the slower task's candidates left."""
    jobs = [
        Script(name=f"{task} {number}", evaluate=Orders(sleep_s=seconds)).job(task)
        for number in range(14)
        for task, seconds in (("causal_conv", 0.5), ("depthwise_separable", 0.05))
    ]
    with pool_of(lanes=2, builders=1) as pool:
        found = list(pool.evaluate(jobs))
    assert verdicts(found, jobs) == 28 * [Verdict.CORRECT]
    ended_s = [times[-1][1] for times in spans(found, "verify").values()]
    assert len(ended_s) == 2
    # Those few that are not worth getting ready for, and one that was just begun.
    assert abs(ended_s[0] - ended_s[1]) < 0.5 * (GETTING_READY_JOBS + 1) + 0.5


def test_no_more_jobs_are_taken_than_there_is_room_for() -> None:
    taken: list[int] = []

    def endless() -> Iterator[Job]:
        for number in itertools.count():
            taken.append(number)
            yield Script(name=str(number)).job()

    with pool_of(lanes=1, builders=2) as pool:
        results = pool.evaluate(endless())
        for count in range(1, 6):
            next(results)
            # Two builders and a lane, and as many again that wait for them.
            assert len(taken) <= 2 * (2 + 1) + count


def test_results_come_before_the_caller_has_brought_all_jobs() -> None:
    """Not only when the room is full: whoever makes candidates one by one waits for each result."""
    first_came = threading.Event()

    def slowly() -> Iterator[Job]:
        yield Script(name="first").job()
        # The caller has the pool's attention only between its jobs.
        time.sleep(3)
        yield Script(name="second").job()
        assert first_came.is_set()
        yield Script(name="third").job()

    with pool_of() as pool:
        for _ in pool.evaluate(slowly()):
            first_came.set()


def test_what_nobody_waits_for_any_more_does_not_come_with_the_next() -> None:
    with pool_of() as pool:
        results = pool.evaluate(Script(name=str(number), evaluate=Orders(sleep_s=0.1)).job() for number in range(50))
        next(results)
        results.close()
        job = Script(name="next").job()
        assert [each.job for each in pool.evaluate([job])] == [job.id]


def test_a_judge_serves_all_candidates_of_its_task_in_a_process() -> None:
    tasks = ["causal_conv", "conv_groupnorm", "causal_conv", "conv_groupnorm"]
    jobs = [Script(name=str(number)).job(task) for number, task in enumerate(tasks)]
    with pool_of() as pool:
        found = {each.job: each.evaluation.verify for each in pool.evaluate(jobs)}
    judges = [re.sub(", process.*", "", getattr(found[job.id], "sandbox", "")) for job in jobs]
    assert judges[0] == judges[2] and judges[1] == judges[3]
    assert {judge.partition(" of ")[2] for judge in judges} == set(tasks)


def test_a_judge_that_failed_makes_room_for_a_new_one() -> None:
    broken = Script(name="broken", evaluate=Orders(verdict=Verdict.HARNESS_ERROR)).job()
    jobs = [Script(name="before").job(), broken, Script(name="after").job()]
    with pool_of() as pool:
        found = {each.job: each for job in jobs for each in pool.evaluate([job])}
    before, after = (getattr(found[job.id].evaluation.verify, "sandbox", "") for job in (jobs[0], jobs[2]))
    assert before.startswith("judge 1 ") and after.startswith("judge 2 ")
    assert before.partition("process")[2] == after.partition("process")[2]


INTERRUPTED = """
import signal
import sys
# A shell that starts the tests in the background has them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
from pool_stand_ins import DIES_GETTING_READY, JUDGE, Orders, Script
from tasks.spec import Target
from tools.local_site import local_site
from tools.pool import Pool
from tools.pool_queue import GETTING_READY_JOBS
orders = [Orders(sleep_s=120, touch=sys.argv[2]), Orders()]
jobs = [Script(name="lane", evaluate=orders[0]).job()]
jobs += [Script(name=str(number), build=Orders(sleep_s=120, touch=sys.argv[3])).job() for number in range(2)]
with Pool([local_site(Target.CPU, print, lanes=1, builders=2, judge=JUDGE)]) as pool:
    list(pool.evaluate(jobs))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_when_the_caller_is_ended_nothing_stays_behind(sent: signal.Signals, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    evaluating, building = tmp_path / "evaluating", tmp_path / "building"
    argv = [sys.executable, "-c", INTERRUPTED, str(HERE), str(evaluating), str(building)]
    with subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "TMPDIR": str(home)}, stderr=subprocess.PIPE) as caller:
        assert within(20, lambda: evaluating.exists() and building.exists())
        started = descendants(caller.pid)
        assert len(started) == 3
        caller.send_signal(sent)
        _, errors = caller.communicate(timeout=20)
    assert within(10, lambda: not any(map(running, started)))
    assert within(10, lambda: not list(home.iterdir()))
    assert caller.returncode != 0
    assert sent is signal.SIGKILL or errors.decode().rstrip().endswith("KeyboardInterrupt")


class MortalSite:
    """A machine with one lane and one builder that is lost when it is told so."""

    lanes = ("cpu:0",)
    builders = 1

    def __init__(self, name: str, dead: Path) -> None:
        self.name = name
        self._dead = dead

    def start(self, role: Role, number: int) -> Member:
        assert number == 0
        if self._dead.exists():
            raise SiteLostError(self.name)
        return MemberProcess(role, print, judge=JUDGE)


def test_a_lost_machines_jobs_go_to_the_others_and_it_costs_them_no_attempt(tmp_path: Path) -> None:
    """The first machine dies with each of its jobs; the others are done on the second one."""
    dead = tmp_path / "dead"
    jobs = [Script(name="last", evaluate=Orders(dies_once=str(dead), sleep_s=0.5)).job()]
    jobs += [Script(name=str(number), evaluate=Orders(sleep_s=0.2)).job() for number in range(8)]
    with Pool([MortalSite("first", dead), MortalSite("second", tmp_path / "never")]) as pool:
        found = list(pool.evaluate(jobs))
    assert sorted(each.job for each in found) == sorted(job.id for job in jobs)
    assert verdicts(found, jobs) == 9 * [Verdict.CORRECT]
    assert {span.where.partition(" ")[0] for each in found for span in each.spans} >= {"second"}


def test_without_any_machine_left_the_caller_is_told(tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    jobs = [Script(name=str(number), evaluate=Orders(dies_once=str(dead))).job() for number in range(3)]
    with (
        Pool([MortalSite("only", dead)]) as pool,
        pytest.raises(HarnessError, match="every machine of the pool was lost"),
    ):
        list(pool.evaluate(jobs))


def test_an_unexpected_failure_of_the_pool_itself_reaches_the_caller() -> None:
    class Broken(MortalSite):
        def start(self, role: Role, number: int) -> Member:
            raise ZeroDivisionError(role, number)

    with Pool([Broken("broken", Path())]) as pool, pytest.raises(ZeroDivisionError):
        list(pool.evaluate([Script(name="any").job()]))


def test_what_a_killed_pool_has_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the caller and its processes were killed, so that nobody tidied up; what is in use stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    old, used, other = (tmp_path / name for name in ("kernelwright-pool-lane-1", "kernelwright-pool-lane-2", "other"))
    for folder in (old, used, other):
        (folder / "inner").mkdir(parents=True)
        (folder / "log").touch()
    monkeypatch.setattr("tools.members._STALE_S", -1.0)
    with (used / "log").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_stale_folders(tmp_path)
        assert (old.exists(), used.exists(), other.exists()) == (False, True, True)
    with pool_of() as pool:
        (found,) = pool.evaluate([Script(name="any").job()])
    assert found.evaluation.verdict is Verdict.CORRECT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]
