"""What a command does not need is not imported: waiting for PyTorch takes seconds, for other packages tenths of one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runs.find import list_runs
from runs.places import RECORDED

ROOT = Path(__file__).resolve().parents[1]
RUN = str(list_runs(RECORDED)[0].path)
CODE = """
import json, sys
import kernelwright
sys.argv[0] = "kernelwright"
try:
    kernelwright.main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
HEAVY = {"torch", "openai", "jinja2", "tenacity", "httpx2", "setuptools", "numpy"}
MODEL_SIDE = {"agent.loop", "agent.choice", "agent.served", "tools.judge", "tools.build"}
RECORDS = {"tasks.spec", "tools.results", "runs.events", "evals.scores"}


def imported_by(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "command",
    [
        "tasks",
        "run",
        "resume",
        "fork",
        "show",
        "replay",
        "import",
        "export",
        "score",
        "scores",
        "attacks",
        "doctor",
        "cache",
    ],
)
def test_help_needs_nothing_that_the_command_needs(command: str) -> None:
    assert imported_by(command, "--help").isdisjoint(HEAVY | MODEL_SIDE | RECORDS)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_first_help_needs_no_records_either(option: str) -> None:
    """Typer itself imports pydantic, but only for a command with arguments."""
    assert imported_by(option).isdisjoint(HEAVY | MODEL_SIDE | RECORDS | {"pydantic"})


@pytest.mark.parametrize("arguments", [("tasks",), ("tasks", "causal_conv"), ("tasks", "--json"), ("cache",)])
def test_tasks_and_the_cache_need_no_runs(arguments: tuple[str, ...]) -> None:
    assert imported_by(*arguments).isdisjoint(HEAVY | MODEL_SIDE | {"runs.events", "tools.fork_server"})


@pytest.mark.parametrize("arguments", [("show",), ("show", RUN), ("show", "--json"), ("show", RUN, "--json")])
def test_showing_runs_needs_only_their_records(arguments: tuple[str, ...]) -> None:
    assert imported_by(*arguments).isdisjoint(HEAVY | MODEL_SIDE | {"evals.scores"})


@pytest.mark.parametrize("arguments", [("scores", RUN), ("scores", str(RECORDED), "--json")])
def test_scores_of_recorded_runs_need_numpy_at_most(arguments: tuple[str, ...]) -> None:
    assert imported_by(*arguments).isdisjoint((HEAVY | MODEL_SIDE) - {"numpy"})


def test_imports_and_exports_need_only_records(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    assert imported_by("export", RUN, "--to", "chat").isdisjoint(HEAVY | MODEL_SIDE | {"opentelemetry.sdk"})
    file.write_text('[{"role": "user", "content": "Begin."}]')
    assert imported_by("import", str(file), "--out", str(tmp_path / "runs")).isdisjoint(HEAVY | MODEL_SIDE)
