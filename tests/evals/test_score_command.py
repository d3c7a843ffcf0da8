"""The command `score`: exit codes, what goes to which stream, and nothing evaluated after bad usage."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

import pytest
from typer.testing import CliRunner, Result

from kernelwright import app
from tasks.errors import UsageError
from tasks.spec import Target
from tools.jobs import Evaluated, Job
from tools.pool_queue import Site
from tools.results import Built, Evaluation, Fault
from tools.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]


class StandInPool:
    """Answers with the verdict that a candidate's text names, the last job first: the command alone is tested."""

    jobs: list[Job]
    sites: Sequence[Site]

    def __init__(self, sites: Sequence[Site]) -> None:
        StandInPool.sites = sites

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def evaluate(self, jobs: Iterable[Job]) -> Iterator[Evaluated]:
        StandInPool.jobs = list(jobs)
        for job in reversed(StandInPool.jobs):
            yield Evaluated(job=job.id, evaluation=evaluation(job))


def evaluation(job: Job) -> Evaluation:
    verdict = Verdict(job.text.strip())
    candidate = job.candidate.id
    build: Built | Fault
    if verdict is Verdict.CORRECT:
        build = Built(candidate=candidate, extensions=(), sandbox="none", seconds=1.0)
    else:
        build = Fault(stage="build", verdict=verdict, message="why", candidate=candidate)
    return Evaluation(candidate=candidate, task=job.task.name, target=job.target, build=build)


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tools.pool")
    module.__dict__["Pool"] = StandInPool
    monkeypatch.setitem(sys.modules, "tools.pool", module)
    StandInPool.jobs = []
    StandInPool.sites = ()


def score(folder: Path, *texts: str, options: tuple[str, ...] = ("--target", "cpu")) -> Result:
    files = []
    for number, text in enumerate(texts):
        path = folder / f"candidate_{number}.py"
        path.write_bytes(text.encode())
        files.append(str(path))
    return CliRunner().invoke(app, ["score", "causal_conv", *files, *options])


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        (("correct",), 0),
        (("correct", "correct"), 0),
        (("correct", "incorrect"), 1),
        (("harness_error",), 1),
        (("incorrect", "unavailable"), 3),
    ],
)
def test_exit_codes(tmp_path: Path, texts: tuple[str, ...], code: int) -> None:
    """R31: what is wrong on a shape that it was not shown is no success."""
    assert score(tmp_path, *texts).exit_code == code


def test_one_pool_on_this_machine_serves_all_files(tmp_path: Path) -> None:
    score(tmp_path, "correct", "incorrect", "timeout", options=("--target", "cpu", "--allow-library"))
    asked = [(job.task.name, job.task.source, job.target, job.allow_library, job.text) for job in StandInPool.jobs]
    assert asked == [("causal_conv", None, Target.CPU, True, text) for text in ("correct", "incorrect", "timeout")]
    assert [site.lanes for site in StandInPool.sites] == [("cpu:0",)]


def test_a_task_that_does_not_ship_goes_along_as_text(tmp_path: Path) -> None:
    """On another machine of a cluster its path would name nothing, or something else."""
    source = (ROOT / "tasks" / "causal_conv.py").read_text(encoding="utf-8") + "# changed\n"
    task, candidate = tmp_path / "causal_conv.py", tmp_path / "candidate.py"
    task.write_text(source, encoding="utf-8")
    candidate.write_text("correct", encoding="utf-8")
    assert CliRunner().invoke(app, ["score", str(task), str(candidate), "--target", "cpu"]).exit_code == 0
    assert [(job.task.file, job.task.source) for job in StandInPool.jobs] == [("causal_conv.py", source)]


@pytest.mark.parametrize(("options", "strict"), [((), False), (("--strict",), True)])
def test_the_sanitizer_runs_only_where_it_is_asked_for(tmp_path: Path, options: tuple[str, ...], strict: bool) -> None:
    score(tmp_path, "correct", options=("--target", "cpu", *options))
    assert [job.strict for job in StandInPool.jobs] == [strict]


def test_json_writes_one_object_a_line_and_progress_elsewhere(tmp_path: Path) -> None:
    """Standard output is in the order of the files although the last result came first."""
    result = score(tmp_path, "correct", "incorrect", "timeout", options=("--target", "cpu", "--json"))
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["verdict"] for line in lines] == ["correct", "incorrect", "timeout"]
    assert [Path(line["file"]).name for line in lines] == ["candidate_0.py", "candidate_1.py", "candidate_2.py"]
    assert set(lines[0]) >= {
        *("candidate", "file", "task", "target", "verdict", "message", "speedup", "speedup_interval", "baseline"),
        *("median_ns", "baseline_ns", "floor_ns", "sandbox", "seconds"),
    }
    assert [line.partition("]")[0] for line in result.stderr.splitlines()] == ["[1/3", "[2/3", "[3/3"]
    assert "candidate_2.py: timeout" in result.stderr.splitlines()[0]


def test_a_candidates_id_is_the_hash_of_its_bytes(tmp_path: Path) -> None:
    """Reading with translated line ends would give a file from Windows another id."""
    (line,) = score(tmp_path, "correct\r\n", options=("--target", "cpu", "--json")).stdout.splitlines()
    # printf 'correct\r\n' | sha256sum
    assert json.loads(line)["candidate"] == "9f3223bd0841f1d38fb2a9c46ad757a00c2b2326099673153f65463e83b8c768"


def test_of_a_folder_all_modules_are_taken_in_order(tmp_path: Path) -> None:
    folder, single = tmp_path / "candidates", tmp_path / "single.py"
    folder.mkdir()
    for name, text in (("b.py", "timeout"), ("a.py", "correct"), ("notes.md", "not Python")):
        (folder / name).write_text(text, encoding="utf-8")
    single.write_text("incorrect", encoding="utf-8")
    arguments = ["score", "causal_conv", str(single), str(folder), "--target", "cpu", "--json"]
    lines = [json.loads(line) for line in CliRunner().invoke(app, arguments).stdout.splitlines()]
    assert [Path(line["file"]).name for line in lines] == ["single.py", "a.py", "b.py"]
    assert [line["verdict"] for line in lines] == ["incorrect", "correct", "timeout"]


def test_a_folder_without_candidates_is_bad_usage(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["score", "causal_conv", str(tmp_path), "--target", "cpu"])
    assert isinstance(result.exception, UsageError)
    assert "holds no *.py file" in str(result.exception)


def test_the_same_file_twice_is_two_candidates(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text("correct", encoding="utf-8")
    result = CliRunner().invoke(app, ["score", "causal_conv", str(path), str(path), "--target", "cpu", "--json"])
    assert len(result.stdout.splitlines()) == 2


def test_unreadable_files_are_all_named_before_anything_is_evaluated(tmp_path: Path) -> None:
    good, binary = tmp_path / "good.py", tmp_path / "binary.py"
    good.write_text("correct", encoding="utf-8")
    binary.write_bytes(b"\xff\xfe")
    result = CliRunner().invoke(app, ["score", "causal_conv", str(good), str(tmp_path / "nope.py"), str(binary)])
    assert isinstance(result.exception, UsageError)
    assert "nope.py: No such file" in str(result.exception)
    assert "binary.py: 'utf-8' codec can't decode" in str(result.exception)
    assert StandInPool.jobs == []
