"""The command `tasks` lists and shows tasks, plain where there is no terminal."""

import json

from typer.testing import CliRunner

from kernelwright import app
from tasks.loader import find_task, task_names


def test_the_list_names_every_task_and_shape() -> None:
    result = CliRunner().invoke(app, ["tasks"])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in task_names())
    assert "32 x 256 x 8192" in result.stdout
    assert "\x1b" not in result.stdout


def test_one_task_is_shown_with_its_source() -> None:
    result = CliRunner().invoke(app, ["tasks", "prenorm_dilated_residual"])
    assert find_task("prenorm_dilated_residual").source in result.stdout
    assert "bn.running_mean, bn.running_var, bn.num_batches_tracked" in result.stdout
    assert "any size from 2" in result.stdout


def test_json_is_one_object_a_line() -> None:
    lines = [json.loads(line) for line in CliRunner().invoke(app, ["tasks", "--json"]).stdout.splitlines()]
    assert [line["task"] for line in lines] == list(task_names())
    (shown,) = CliRunner().invoke(app, ["tasks", "causal_conv", "--json"]).stdout.splitlines()
    assert json.loads(shown)["source"] == find_task("causal_conv").source
    assert json.loads(shown)["causal_axis"] == "L"
