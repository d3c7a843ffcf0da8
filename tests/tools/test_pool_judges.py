"""The pool with real judges on the host: the same answers as a judge alone, and nothing left of what was ended."""

import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import CONVOLUTION, candidate_of, task_of
from processes import descendants, running, within

from tasks.loader import Task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.jobs import Job, JobTask
from tools.judge import Judge
from tools.local_site import local_site
from tools.pool import Pool
from tools.results import Evaluation, Fault, Verified
from tools.server_process import Processes
from tools.verdict import Verdict

pytestmark = pytest.mark.usefixtures("small_caches")

BUILDS = """
from torch.utils.cpp_extension import load_inline
load_inline(name="slow", cpp_sources="int one() { return 1; }", functions=["one"])
"""
SLOW_COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo slow 1.0; exit; fi
sleep 100
"""

RIGHT = candidate_of(CONVOLUTION)
CANDIDATES = {
    Verdict.CORRECT: RIGHT,
    Verdict.INCORRECT: candidate_of(CONVOLUTION, ("return self.conv(x)", "return self.conv(x) * 1.01")),
    Verdict.CONTRACT_ERROR: candidate_of(CONVOLUTION, ("4, 4, 3, padding=1", "4, 4, 5, padding=2")),
    Verdict.BUILD_FAILED: Candidate("def\n"),
    Verdict.CRASHED: candidate_of(CONVOLUTION, ("return self.conv(x)", "raise RuntimeError('why')")),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    before = descendants(os.getpid())
    yield folder
    # Judges make folders with this name; PyTorch makes others, in the test's own process too.
    assert within(5, lambda: not list(folder.glob("kernelwright-*"))), list(folder.rglob("*"))
    assert within(5, lambda: descendants(os.getpid()) <= before)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return task_of(tmp_path, CONVOLUTION)


def job_of(task: Task, candidate: Candidate) -> Job:
    return Job(task=JobTask.of(task), target=Target.CPU, text=candidate.text, allow_library=True)


def told(evaluation: Evaluation) -> list[object]:
    """What must be the same whatever was drawn and however long it took."""
    verify, timed = evaluation.verify, evaluation.timed
    checks = [(check.trial.partition(",")[2], check.output) for check in getattr(verify, "checks", ())]
    fault = evaluation.fault
    return [
        *(evaluation.candidate, evaluation.task, evaluation.target, evaluation.verdict, evaluation.build.sandbox),
        *(fault and fault.stage, isinstance(verify, Verified) and verify.precision, sorted(set(checks))),
        *(timed and sorted(baseline.name for baseline in timed.baselines),),
    ]


def test_the_pool_answers_what_a_judge_alone_answers(task: Task, processes: Processes) -> None:
    jobs = {job_of(task, candidate).id: (verdict, candidate) for verdict, candidate in CANDIDATES.items()}
    with Pool([local_site(Target.CPU, print, builders=1)]) as pool:
        found = list(pool.evaluate(job_of(task, candidate) for candidate in CANDIDATES.values()))
    assert {each.job: each.evaluation.verdict for each in found} == {key: verdict for key, (verdict, _) in jobs.items()}
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        for each in found:
            alone = judge.evaluate(jobs[each.job][1])
            assert told(each.evaluation) == told(alone)
            if alone.verdict is not Verdict.INCORRECT:
                assert isinstance(each.evaluation.fault, Fault) == isinstance(alone.fault, Fault)


def test_a_lane_that_is_killed_while_it_verifies_takes_its_workers_along(task: Task) -> None:
    wrong = "__import__('time').sleep(2)\nreturn self.conv(x) * 1.01"
    slow = candidate_of(CONVOLUTION, ("return self.conv(x)", wrong))
    with Pool([local_site(Target.CPU, print, builders=1)]) as pool:
        results = pool.evaluate([job_of(task, candidate) for candidate in (CANDIDATES[Verdict.INCORRECT], slow)])
        next(results)
        lane = next(pid for pid in descendants(os.getpid()) if b"lane" in arguments_of(pid))
        # Its fork server, and a worker of that: the slow one is being verified.
        assert within(30, lambda: len(descendants(lane)) > 1)
        started = descendants(lane)
        os.kill(lane, signal.SIGKILL)
        (second,) = results
        assert not any(map(running, started))
    assert (second.evaluation.verdict, second.attempts) == (Verdict.INCORRECT, 2)


def arguments_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def test_closing_does_not_wait_for_compilers(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilers = tmp_path / "bin"
    compilers.mkdir()
    compiler = compilers / "slow-c++"
    compiler.write_text(SLOW_COMPILER)
    compiler.chmod(stat.S_IRWXU)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    job = job_of(task, Candidate(BUILDS + RIGHT.text))
    closing = []

    def interrupted() -> Iterator[Job]:
        yield job
        assert within(60, lambda: any(b"100" in arguments_of(pid) for pid in descendants(os.getpid())))
        closing.append(time.monotonic())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Pool([local_site(Target.CPU, print, builders=1)]) as pool:
        list(pool.evaluate(interrupted()))
    assert time.monotonic() - closing[0] < 20
    assert not list((tmp_path / "cache" / "builds").iterdir())
