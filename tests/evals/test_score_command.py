"""The command `score`: exit codes, what goes to which stream, and nothing evaluated after bad usage."""

import json
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

import pytest
from typer.testing import CliRunner, Result

from kernelwright import app
from tasks.errors import UnavailableError, UsageError
from tasks.loader import Task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.results import Built, Evaluation, Fault
from tools.verdict import Verdict


class StandInJudge:
    """Answers with the verdict that a candidate's text names, so that the command alone is tested."""

    made: list[tuple[str, Target, bool]]
    strict: list[bool]

    def __init__(self, task: Task, target: Target, *, allow_library: bool = False) -> None:
        if target is Target.CUDA:
            raise UnavailableError("no GPU here")
        self.task = task
        self.target = target
        StandInJudge.made.append((task.name, target, allow_library))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def evaluate(self, candidate: Candidate, *, strict: bool = False) -> Evaluation:
        StandInJudge.strict.append(strict)
        verdict = Verdict(candidate.text.strip())
        if verdict is Verdict.CORRECT:
            build = Built(candidate=candidate.id, extensions=(), sandbox="none", seconds=1.0)
            return Evaluation(candidate=candidate.id, task=self.task.name, target=self.target, build=build)
        fault = Fault(stage="build", verdict=verdict, message="why", candidate=candidate.id)
        return Evaluation(candidate=candidate.id, task=self.task.name, target=self.target, build=fault)


@pytest.fixture(autouse=True)
def judge(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tools.judge")
    module.__dict__["Judge"] = StandInJudge
    monkeypatch.setitem(sys.modules, "tools.judge", module)
    StandInJudge.made = []
    StandInJudge.strict = []


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


def test_one_judge_serves_all_files(tmp_path: Path) -> None:
    score(tmp_path, "correct", "incorrect", "timeout", options=("--target", "cpu", "--allow-library"))
    assert StandInJudge.made == [("causal_conv", Target.CPU, True)]


@pytest.mark.parametrize(("options", "strict"), [((), False), (("--strict",), True)])
def test_the_sanitizer_runs_only_where_it_is_asked_for(tmp_path: Path, options: tuple[str, ...], strict: bool) -> None:
    score(tmp_path, "correct", options=("--target", "cpu", *options))
    assert StandInJudge.strict == [strict]


def test_json_writes_one_object_a_line_and_progress_elsewhere(tmp_path: Path) -> None:
    result = score(tmp_path, "correct", "incorrect", options=("--target", "cpu", "--json"))
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["verdict"] for line in lines] == ["correct", "incorrect"]
    assert set(lines[0]) >= {
        *("candidate", "file", "task", "target", "verdict", "message", "speedup", "speedup_interval", "baseline"),
        *("median_ns", "baseline_ns", "floor_ns", "sandbox", "seconds"),
    }
    assert "[2/2]" in result.stderr


def test_a_candidates_id_is_the_hash_of_its_bytes(tmp_path: Path) -> None:
    """Reading with translated line ends would give a file from Windows another id."""
    (line,) = score(tmp_path, "correct\r\n", options=("--target", "cpu", "--json")).stdout.splitlines()
    # printf 'correct\r\n' | sha256sum
    assert json.loads(line)["candidate"] == "9f3223bd0841f1d38fb2a9c46ad757a00c2b2326099673153f65463e83b8c768"


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
    assert StandInJudge.made == []


def test_a_machine_without_the_target_is_unavailable(tmp_path: Path) -> None:
    result = score(tmp_path, "correct", options=("--target", "cuda"))
    assert isinstance(result.exception, UnavailableError)
