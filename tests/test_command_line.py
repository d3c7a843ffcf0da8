"""The command line as a program: its commands, its exit codes, and one clear line for an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernelwright
from tasks.errors import HarnessError, KernelwrightError, RunFormatError, TaskError, UnavailableError, UsageError

ROOT = Path(__file__).resolve().parents[1]


def kernelwright_with(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "kernelwright.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_commands() -> None:
    done = kernelwright_with("--help")
    assert done.returncode == 0
    assert all(
        name in done.stdout for name in ("doctor", "tasks", "run", "show", "replay", "import", "export", "score")
    )


def test_the_version() -> None:
    done = kernelwright_with("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("kernelwright")


@pytest.mark.parametrize("arguments", [("tasks", "no_such_task"), ("score", "no_such_task", "x.py"), ("nothing",)])
def test_bad_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    done = kernelwright_with(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_an_error_is_one_line_on_standard_error() -> None:
    done = kernelwright_with("tasks", "casual_conv")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("kernelwright: no task is named 'casual_conv'; did you mean causal_conv?")


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError, 2), (TaskError, 2), (UnavailableError, 3), (HarnessError, 4), (RunFormatError, 4)],
)
def test_each_error_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: type[KernelwrightError],
    code: int,
) -> None:
    def fail() -> None:
        raise error("what happened, where, what to do")

    monkeypatch.setattr(kernelwright, "app", fail)
    with pytest.raises(SystemExit) as ended:
        kernelwright.main()
    assert ended.value.code == code
    assert capsys.readouterr().err == "kernelwright: what happened, where, what to do\n"


def test_threads_of_the_judge_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spinning, they kept a core from the worker that was timed: the same kernel took 5 or 9 ms."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr("sys.argv", ["kernelwright", "--version"])
    with pytest.raises(SystemExit):
        kernelwright.main()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
