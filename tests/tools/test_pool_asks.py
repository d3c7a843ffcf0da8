"""Single tools' questions to the pool, from several threads at once, with a judge that does what it is told."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pool_stand_ins import BRIEFING, JUDGE, NO_BRIEFING, Orders, Script
from processes import within

from tasks.errors import HarnessError, StoppedError
from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.disassembly_results import Disassembled
from tools.jobs import JobTask, Question
from tools.local_site import local_site
from tools.pool import Pool
from tools.pooled import PooledEvaluator
from tools.profile_results import Profiled
from tools.results import Evaluation, Fault, Timed, Verified
from tools.sanitizer_results import Sanitized
from tools.verdict import Verdict

HERE = Path(__file__).parent
TASK = JobTask.of(find_task("causal_conv"))


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("KERNELWRIGHT_LEASES", str(tmp_path / "leases"))


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool([local_site(Target.CPU, lambda _: None, lanes=1, builders=1, judge=JUDGE)]) as made:
        yield made


def evaluator(pool: Pool) -> PooledEvaluator:
    return PooledEvaluator(pool, TASK, Target.CPU)


def candidate(build: Orders = Orders(), evaluate: Orders = Orders()) -> Candidate:  # noqa: B008
    return Candidate(Script(name="any", build=build, evaluate=evaluate).model_dump_json())


def test_every_question_has_its_own_answer(pool: Pool) -> None:
    asked, given = evaluator(pool), candidate()
    assert asked.briefing() == BRIEFING
    assert asked.compile(given).candidate == given.id
    assert isinstance(asked.verify(given), Verified)
    assert isinstance(asked.benchmark(given), Timed)
    assert isinstance(asked.profile(given), Profiled)
    assert isinstance(asked.sanitize(given), Sanitized)
    shown = asked.disassemble(given, "main")
    assert isinstance(shown, Disassembled) and shown.function == "main"
    assert isinstance(asked.evaluate(given, strict=False), Evaluation)


def test_the_time_that_the_device_was_held_comes_back_to_who_asked(pool: Pool) -> None:
    busy, idle = evaluator(pool), evaluator(pool)
    slow = candidate(evaluate=Orders(sleep_s=0.2, device="cpu"))
    busy.compile(slow)
    assert busy.leased_s == 0
    busy.verify(slow)
    once = busy.leased_s
    assert once >= 0.2
    busy.evaluate(slow)
    assert busy.leased_s >= once + 0.2
    assert idle.leased_s == 0


def test_builds_go_on_while_a_lane_measures(pool: Pool, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    slow = candidate(evaluate=Orders(sleep_s=100, touch=str(begun)))
    with ThreadPoolExecutor(1) as threads:
        verified = threads.submit(evaluator(pool).verify, slow)
        assert within(60, begun.exists)
        assert evaluator(pool).compile(candidate()).status == "built"
        assert not verified.done()
        pool.hang_up()


@pytest.mark.parametrize(
    ("question", "stage"), [("compile", "build"), ("verify", "evaluate"), ("benchmark", "evaluate")]
)
def test_a_process_that_dies_costs_a_second_attempt(pool: Pool, tmp_path: Path, question: Question, stage: str) -> None:
    given = candidate(**{stage: Orders(dies_once=str(tmp_path / "died"))})
    assert getattr(evaluator(pool), question)(given).status in ("built", "verified", "timed")
    assert (tmp_path / "died").exists()


@pytest.mark.parametrize(
    ("question", "orders", "stage"),
    [
        ("compile", "build", "build"),
        ("verify", "evaluate", "verify"),
        ("benchmark", "evaluate", "benchmark"),
        ("sanitize", "evaluate", "sanitizer"),
        ("profile", "evaluate", "profile"),
    ],
)
def test_one_that_dies_every_time_is_our_fault_at_its_stage(
    pool: Pool, question: Question, orders: str, stage: str
) -> None:
    given = candidate(**{orders: Orders(dies=True)})
    fault = getattr(evaluator(pool), question)(given)
    assert isinstance(fault, Fault)
    assert (fault.stage, fault.verdict, fault.candidate) == (stage, Verdict.HARNESS_ERROR, given.id)
    assert "2 processes of the pool ended" in fault.message
    assert evaluator(pool).verify(candidate()).status == "verified"


def test_a_judge_that_cannot_brief_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NO_BRIEFING, "1")
    with (
        Pool([local_site(Target.CPU, lambda _: None, lanes=1, builders=1, judge=JUDGE)]) as pool,
        pytest.raises(HarnessError, match="no model can be briefed: 2 processes of the pool ended"),
    ):
        evaluator(pool).briefing()


def test_whoever_waits_is_told_when_the_pool_hangs_up(pool: Pool, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    slow = candidate(evaluate=Orders(sleep_s=100, touch=str(begun)))
    with ThreadPoolExecutor(3) as threads:
        waiting: list[Future[object]] = [threads.submit(evaluator(pool).verify, slow) for _ in range(3)]
        assert within(60, begun.exists)
        pool.hang_up()
        for each in waiting:
            with pytest.raises(StoppedError):
                each.result(60)
    with pytest.raises(StoppedError):
        evaluator(pool).verify(candidate())


def test_closing_ends_what_is_being_measured_and_whoever_waits(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    errors: list[BaseException] = []

    def ask(pool: Pool) -> None:
        try:
            evaluator(pool).verify(candidate(evaluate=Orders(sleep_s=100, touch=str(begun))))
        except StoppedError as error:
            errors.append(error)

    with Pool([local_site(Target.CPU, lambda _: None, lanes=1, builders=1, judge=JUDGE)]) as pool:
        thread = threading.Thread(target=ask, args=(pool,))
        thread.start()
        assert within(60, begun.exists)
    thread.join(60)
    assert len(errors) == 1


def test_jobs_of_a_score_and_questions_of_a_rollout_share_a_pool(pool: Pool) -> None:
    jobs = [Script(name=str(number)).job() for number in range(4)]
    results = pool.evaluate(jobs)
    next(results)
    assert evaluator(pool).benchmark(candidate()).status == "timed"
    assert len(list(results)) == 3
