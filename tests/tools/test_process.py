"""Subprocesses end when they should, with all they started, and see no secrets."""

import signal
import sys
import time
from pathlib import Path

import pytest
from processes import running, within

from tools import process
from tools.process import run, scrubbed_environment
from tools.usage import Budget

THREADS = "import threading, time; [threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(20)]"


def test_output_and_exit_code(tmp_path: Path) -> None:
    done = run(["/bin/sh", "-c", "pwd; echo wrong >&2; exit 3"], cwd=tmp_path, timeout_s=10)
    assert (done.returncode, done.output, done.timed_out) == (3, f"{tmp_path}\nwrong\n", False)


def test_a_signal_is_negative(tmp_path: Path) -> None:
    assert run(["/bin/sh", "-c", "kill -SEGV $$"], cwd=tmp_path, timeout_s=10).returncode == -signal.SIGSEGV


def test_the_time_limit_ends_grandchildren_too(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], cwd=tmp_path, timeout_s=0.5)
    assert done.timed_out
    assert time.monotonic() - started < 10
    assert within(5, lambda: not running(int(done.output)))


def test_what_a_program_leaves_running_ends_with_it(tmp_path: Path) -> None:
    done = run(["/bin/sh", "-c", "sleep 60 & echo $!"], cwd=tmp_path, timeout_s=10)
    assert not done.timed_out
    assert within(5, lambda: not running(int(done.output)))


def test_output_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "OUTPUT_LIMIT_BYTES", 1000)
    done = run([sys.executable, "-c", "print('x' * 100_000)"], cwd=tmp_path, timeout_s=30)
    assert done.output == "x" * 1000
    assert list(tmp_path.iterdir()) == []


def test_output_that_is_no_text(tmp_path: Path) -> None:
    assert run(["/usr/bin/printf", r"a\377b"], cwd=tmp_path, timeout_s=10).output == "a�b"


def test_nothing_is_read_from_the_terminal(tmp_path: Path) -> None:
    assert run(["cat"], cwd=tmp_path, timeout_s=10).output == ""


def test_the_environment_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "KERNELWRIGHT_API_KEY", "LD_PRELOAD"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("HF_TOKEN", "secret-value")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    output = run(["/usr/bin/env"], cwd=tmp_path, timeout_s=10).output
    names = {line.partition("=")[0] for line in output.splitlines()}
    assert not names & {"OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "KERNELWRIGHT_API_KEY", "HF_TOKEN"}
    assert "secret-value" not in output
    assert {"PATH", "CUDA_VISIBLE_DEVICES"} <= names
    assert f"TMPDIR={tmp_path}" in output


def test_additions_to_the_environment() -> None:
    assert scrubbed_environment(TMPDIR="/somewhere")["TMPDIR"] == "/somewhere"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run([str(tmp_path / "missing")], cwd=tmp_path, timeout_s=10)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("for n in 1 2 3 4 5 6; do head -c 1000000 /dev/zero > part-$n; done; sleep 60", "in files"),
        ("head -c 6000000 /dev/zero; sleep 60", "in files"),
        ("for n in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait", "processes; the limit is 5"),
        (f"{sys.executable} -c '{THREADS}'", "threads; the limit is 12"),
    ],
    ids=["files", "output", "processes", "threads"],
)
def test_a_program_cannot_take_the_whole_machine(tmp_path: Path, script: str, message: str) -> None:
    """A compiler runs what its input tells it to, and once had only its time bounded."""
    budget = Budget(memory_bytes=1 << 30, disk_bytes=4 << 20, processes=5, threads=12)
    done = run(["/bin/sh", "-c", script], cwd=tmp_path, timeout_s=30, budget=budget)
    assert message in done.over_budget
    assert done.returncode == -signal.SIGKILL
    assert not done.timed_out


def test_a_program_within_its_budget_is_left_alone(tmp_path: Path) -> None:
    done = run(["sleep", "0.5"], cwd=tmp_path, timeout_s=30, budget=Budget(memory_bytes=1 << 30))
    assert (done.returncode, done.over_budget) == (0, "")
