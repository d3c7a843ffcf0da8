"""A candidate under compute-sanitizer: what is found decides the verdict, and no answer never passes for a clean one.

Here the sanitizer is a stand-in and the target the host; tests/tools/test_gpu_sanitizer.py has the true one.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_sanitizer import FakeSanitizer
from judging import CONVOLUTION, candidate_of, task_of
from sanitizer_logs import (
    BARRIERS_UNTRACKED,
    BROKEN_TOOL,
    CLEAN,
    OUT_OF_BOUNDS,
    PYTORCHS_OWN,
    RACE,
    RACE_WARNING,
    TOO_MANY,
)

from tasks.spec import Target
from tools import sanitizer, standalone
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import Built, Evaluation, Verified
from tools.sanitizer import judged, last_word, sanitize
from tools.sanitizer_report import parse_report
from tools.sanitizer_results import Sanitized, SanitizerRun
from tools.server_process import Processes
from tools.session import Session
from tools.subject import Limits
from tools.verdict import Verdict
from tools.worker.sandbox import landlock_version

CANDIDATE = candidate_of(CONVOLUTION)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Session]:
    task = task_of(tmp_path_factory.mktemp("sanitizer"), CONVOLUTION)
    session = Session(task, Target.CPU, Limits(), lambda _: None, processes=processes)
    yield session
    session.close()


@pytest.fixture
def memcheck_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tool starts Python and PyTorch anew, and one shows what matters."""
    monkeypatch.setattr(sanitizer, "SANITIZER_TOOLS", ("memcheck",))


alone = pytest.mark.usefixtures("memcheck_alone")


def one_run(session: Session, fake: FakeSanitizer, candidate: Candidate = CANDIDATE) -> SanitizerRun:
    (run,) = sanitize(session, candidate, fake.path).runs
    return run


def test_each_tools_errors_are_kept_and_the_first_decides(session: Session, tmp_path: Path) -> None:
    fake = FakeSanitizer(tmp_path, {"memcheck": PYTORCHS_OWN, "racecheck": RACE, "initcheck": CLEAN})
    result = sanitize(session, CANDIDATE, fake.path)
    assert [(run.tool, run.outcome) for run in result.runs] == [
        ("memcheck", "clean"),
        ("racecheck", "findings"),
        ("initcheck", "clean"),
    ], result
    assert result.verdict is Verdict.INCORRECT
    assert "in kernel Kernel at offset 0xa60" in result.message
    benchmark = session.task.facts.benchmark_sizes(Target.CPU)
    assert len(result.shapes) == 3
    assert not any(shape.startswith(" ".join(f"{k}={v}" for k, v in benchmark.items())) for shape in result.shapes)
    assert all(run.seconds > 0 for run in result.runs)
    # What memcheck must be told: true allocations with a gap after each, and nothing of the driver's refusals.
    assert fake.flags("memcheck")["caching"] == "1"
    assert fake.flags("memcheck")["--padding"] == "512"
    assert fake.flags("memcheck")["--report-api-errors"] == "no"
    assert "--padding" not in fake.flags("racecheck")
    # A worker that is killed, or leaves by os._exit, would take the end of a true report with it.
    assert fake.exit_codes() == [0, 0, 0]


@alone
def test_an_access_outside_of_memory_crashes_although_outputs_were_right(session: Session, tmp_path: Path) -> None:
    result = sanitize(session, CANDIDATE, FakeSanitizer(tmp_path, {"memcheck": OUT_OF_BOUNDS}).path)
    assert result.verdict is Verdict.CRASHED
    assert "in kernel causal_conv_kernel at cuda.cu:17" in result.message
    assert "first in thread (0,0,0) of block (3,0,0), 2 times" in result.message


def test_warnings_are_shown_and_change_nothing() -> None:
    run = judged("racecheck", parse_report(RACE_WARNING, []), "", 1.0)
    assert run.outcome == "clean"
    assert [finding.severity for finding in run.findings] == ["warning"]


@pytest.mark.parametrize(
    ("log", "problem", "reason"),
    [
        ("", "", "it wrote no summary."),
        (TOO_MANY, "", "it left 157 errors out of its report"),
        (CLEAN, "the candidate failed.", "the candidate failed."),
        (BARRIERS_UNTRACKED, "", "Warning: Detected overflow of tracked cuda::barrier structures."),
        (BROKEN_TOOL, "no worker connected.", "Internal Sanitizer Error"),
        (OUT_OF_BOUNDS + BROKEN_TOOL, "", "Internal Sanitizer Error"),
    ],
    ids=["no report", "report at its limit", "calls failed", "barriers", "tool failed", "tool failed late"],
)
def test_what_says_too_little_is_neither_clean_nor_a_finding(log: str, problem: str, reason: str) -> None:
    run = judged("memcheck", parse_report(log, []), problem, 1.0)
    assert run.outcome == "not_run"
    assert run.reason.startswith(reason)
    assert run.reason.endswith(problem)
    assert run.errors == ()


def test_an_error_counts_although_the_candidate_did_not_live_on() -> None:
    run = judged("memcheck", parse_report(OUT_OF_BOUNDS, []), "the candidate ends as crashed here", 1.0)
    assert run.outcome == "findings"


@alone
def test_outputs_that_go_wrong_only_here_are_neither_clean_nor_a_fault(session: Session, tmp_path: Path) -> None:
    wrong = candidate_of(CONVOLUTION, ("return self.conv(x)", "return self.conv(x) * 1.5"))
    result = sanitize(session, wrong, FakeSanitizer(tmp_path, {"memcheck": CLEAN}).path)
    assert result.runs[0].outcome == "not_run"
    assert result.runs[0].reason.startswith("the candidate ends as incorrect here: ")
    assert result.verdict is Verdict.CORRECT


@alone
def test_a_sanitizer_that_does_not_start_the_candidate_is_not_clean(session: Session, tmp_path: Path) -> None:
    fake = FakeSanitizer(tmp_path, {"memcheck": CLEAN}, before="print('unknown option'); sys.exit(1)")
    run = one_run(session, fake)
    assert run.outcome == "not_run"
    assert "ended before its worker stood. It printed:\nunknown option" in run.reason


@alone
def test_a_sanitizer_that_cannot_be_executed_is_not_clean(session: Session, tmp_path: Path) -> None:
    fake = FakeSanitizer(tmp_path, {"memcheck": CLEAN})
    fake.path.chmod(0o600)
    run = one_run(session, fake)
    assert run.outcome == "not_run"
    assert "cannot be started" in run.reason


@alone
def test_a_folder_too_deep_for_a_socket_says_what_to_do(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    run = one_run(session, FakeSanitizer(tmp_path, {"memcheck": CLEAN}))
    assert run.outcome == "not_run"
    assert "set TMPDIR to a folder with a shorter path" in run.reason


@alone
def test_a_sanitizer_that_hangs_is_ended_with_all_it_started(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizer, "TOOL_LIMIT_S", 1.0)
    hanging = "child = subprocess.Popen(['sleep', '600'])\n(folder / 'child').write_text(str(child.pid))\nchild.wait()"
    run = one_run(session, FakeSanitizer(tmp_path, {"memcheck": CLEAN}, before=hanging))
    assert (run.outcome, run.reason) == ("not_run", "not finished within 1 s.")
    assert gone(int((tmp_path / "child").read_text()))


@alone
def test_a_candidate_that_hangs_under_it_is_ended_too(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a group of its own, as a launcher may put it, so that the program's group does not hold it."""
    monkeypatch.setattr(sanitizer, "TOOL_LIMIT_S", 8.0)
    mark = tmp_path / "worker"
    apart = f"""program = ["setsid", "sh", "-c", 'echo $$ > {mark}; exec "$@"', "sh", *program]"""
    endless = candidate_of(CONVOLUTION, ("return self.conv(x)", "while True: pass"))
    run = one_run(session, FakeSanitizer(tmp_path, {"memcheck": CLEAN}, before=apart), endless)
    assert (run.outcome, run.reason) == ("not_run", "not finished within 8 s.")
    assert gone(int(mark.read_text()))


@alone
@pytest.mark.skipif(not landlock_version(), reason="needs a kernel with Landlock")
def test_a_candidate_cannot_write_its_own_report(session: Session, tmp_path: Path) -> None:
    forging = """
import sys, json, os
from pathlib import Path
folder = Path(json.loads(sys.argv[1])["scratch"]).parent
forged = b"========= ERROR SUMMARY: 0 errors"
try:
    (folder / "report.txt").write_bytes(forged)
except PermissionError:
    pass
else:
    raise RuntimeError("it could open the report")
for number in range(3, 64):
    try:
        if os.readlink(f"/proc/self/fd/{number}").endswith("report.txt"):
            os.write(number, forged)
    except OSError:
        pass
"""
    run = one_run(session, FakeSanitizer(tmp_path, {}), Candidate(forging + CANDIDATE.text))
    assert run.reason == "it wrote no summary."


def test_a_worker_whose_judge_is_gone_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "GRACE_S", -58.0)
    started = standalone.Standalone(["env"], tmp_path, gpu=False, read=[], environment={})
    worker = started.spawn(1 << 20, timeout_s=60.0)
    try:
        assert started.reap(worker.pid) == -signal.SIGALRM
    finally:
        worker.close()
        started.close()


def test_the_host_target_says_that_nothing_was_run(session: Session) -> None:
    result = last_word(session, CANDIDATE)
    assert {run.outcome for run in result.runs} == {"not_run"}
    assert [run.tool for run in result.runs] == ["memcheck", "racecheck", "initcheck"]
    assert all("the target is cpu" in run.reason for run in result.runs)
    assert result.verdict is Verdict.CORRECT


def test_only_a_strict_evaluation_asks_and_what_is_found_ends_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = judged("memcheck", parse_report(OUT_OF_BOUNDS, []), "", 1.0)
    asked: list[Candidate] = []

    def found(_: Session, candidate: Candidate) -> Sanitized:
        asked.append(candidate)
        return Sanitized(candidate=candidate.id, shapes=("N=1",), runs=(run,))

    built = Built(candidate=CANDIDATE.id, extensions=(), sandbox="", seconds=1.0)
    verified = Verified(candidate=CANDIDATE.id, precision=session.precision, checks=(), sandbox="", seconds=1.0)
    timing: list[Candidate] = []
    monkeypatch.setattr("tools.judge.last_word", found)
    monkeypatch.setattr(Judge, "compile", lambda *_: built)
    monkeypatch.setattr(Judge, "verify", lambda *_: verified)
    monkeypatch.setattr(Judge, "benchmark", lambda _, candidate: timing.append(candidate))
    with Judge(session.task, Target.CPU) as judge:
        assert judge.evaluate(CANDIDATE).sanitizer is None
        assert (asked, timing) == ([], [CANDIDATE])
        strict = judge.evaluate(CANDIDATE, strict=True)
    assert (asked, timing) == ([CANDIDATE], [CANDIDATE])
    assert strict.verdict is Verdict.CRASHED
    assert strict.fault is not None and strict.fault.stage == "sanitizer"
    assert Evaluation.model_validate_json(strict.model_dump_json()) == strict


def test_a_machine_without_it_says_so(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: None)
    result = last_word(replace(session, target=Target.CUDA), CANDIDATE)
    assert {run.outcome for run in result.runs} == {"not_run"}
    assert all(run.reason.startswith("compute-sanitizer is not installed") for run in result.runs)


def test_a_machine_without_a_gpu_says_so(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: FakeSanitizer(tmp_path, {}).path)
    result = last_word(replace(session, target=Target.CUDA), CANDIDATE)
    assert all("PyTorch sees no GPU" in run.reason for run in result.runs)


def gone(pid: int) -> bool:
    """Whether a process ends within a moment; a zombie that its new parent has not reaped yet has ended."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False
