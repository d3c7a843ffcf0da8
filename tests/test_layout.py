"""The house stands: five floors of this checkout, imports downward only, and no PyTorch where only records are read."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("tasks", "tools", "runs", "agent", "evals")


@pytest.mark.parametrize("floor", FLOORS)
def test_each_floor_is_this_checkouts(floor: str) -> None:
    spec = importlib.util.find_spec(floor)
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).resolve() == ROOT / floor / "__init__.py"


def test_imports_go_downward_only() -> None:
    pytest.importorskip("importlinter", reason="needs import-linter: pip install -e '.[dev]'")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "tasks.loader",
        "tasks.commands",
        "tools.results",
        "tools.doctor",
        "tools.pool",
        "tools.pool_process",
        "tools.local_site",
        "runs.events",
        "runs.store",
        "runs.render",
        "runs.importing.report",
        "runs.exporting.command",
        "evals.scores",
        "evals.score_table",
        "evals.commands",
        "kernelwright",
    ],
)
def test_torch_is_not_imported_by(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{module} imports torch, or cannot be imported: {done.stderr}"
