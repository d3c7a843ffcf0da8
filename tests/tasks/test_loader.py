"""Tasks are found by name and path, and their facts are read without executing them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.errors import TaskError
from tasks.loader import all_tasks, find_task, task_names
from tasks.spec import Precision, Target

STATED = """
from tasks.spec import *

raise RuntimeError("reading the facts must not execute the file")

TASK = TaskFacts(
    name="stated",
    title="A title",
    used_in="a test",
    precision=TargetPrecision(cuda=Precision.BF16, cpu=Precision.FP32),
    axes=(Axis(name="N", cuda=8, cpu=2),),
    inputs=(InputSpec(name="x", dims=("N", 3)),),
    modes=("eval",),
)
"""


def write(folder: Path, text: str, name: str = "problem.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_tasks_that_ship() -> None:
    assert task_names() == (
        "causal_conv",
        "conv_groupnorm",
        "depthwise_separable",
        "prenorm_dilated_residual",
        "prenorm_dilated_residual_eval",
    )


def test_files_that_are_not_tasks_are_told_apart() -> None:
    assert {task.path.name for task in all_tasks()}.isdisjoint({"loader.py", "spec.py", "errors.py", "kernelbench.py"})


def test_a_second_mode_is_a_task_of_its_own() -> None:
    train, evaluated = find_task("prenorm_dilated_residual"), find_task("prenorm_dilated_residual_eval")
    assert (train.mode, evaluated.mode) == ("train", "eval")
    assert train.path == evaluated.path
    assert evaluated.name == "prenorm_dilated_residual_eval"


def test_facts_are_read_without_executing_the_file(tmp_path: Path) -> None:
    task = find_task(write(tmp_path, STATED))
    assert task.name == "stated"
    assert task.mode == "eval"
    assert task.facts.precision_on(Target.CUDA) is Precision.BF16
    assert task.facts.benchmark_sizes(Target.CPU) == {"N": 2}


def test_facts_are_read_without_torch() -> None:
    code = "import sys; from tasks.loader import all_tasks; assert all_tasks(); sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_an_unknown_name_lists_close_ones() -> None:
    with pytest.raises(TaskError, match=r"'casual_conv'; did you mean causal_conv\? known are causal_conv, conv_group"):
        find_task("casual_conv")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(TaskError, match=r"nowhere/problem\.py: the task file cannot be read"):
        find_task("nowhere/problem.py")


def test_a_syntax_error_gives_the_line(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"problem\.py:2: the task file is not valid Python"):
        find_task(write(tmp_path, "x = 1\nclass Model(:\n"))


def test_facts_that_break_a_rule_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"(?s)TASK does not hold valid facts.*inputs use axes that are not listed"):
        find_task(write(tmp_path, STATED.replace('dims=("N", 3)', 'dims=("M", 3)')))


def test_facts_cannot_call_other_code(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"TASK cannot be evaluated on its own \(NameError"):
        find_task(write(tmp_path, STATED.replace('"A title"', 'open("/etc/hostname").read()')))


def test_facts_must_be_task_facts(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"TASK is a dict; write TASK = TaskFacts"):
        find_task(write(tmp_path, "TASK = {'name': 'x'}"))


def test_loading_names_what_the_form_lacks(tmp_path: Path) -> None:
    facts = STATED.replace('raise RuntimeError("reading the facts must not execute the file")', "")
    task = find_task(write(tmp_path, facts + "class Model: pass\n"))
    with pytest.raises(TaskError, match=r"problem\.py: get_inputs, get_init_inputs not defined"):
        task.load()


def test_loading_reports_what_the_file_raises(tmp_path: Path) -> None:
    task = find_task(write(tmp_path, STATED))
    with pytest.raises(TaskError, match=r"executing the task file failed: RuntimeError: reading the facts must not"):
        task.load()
