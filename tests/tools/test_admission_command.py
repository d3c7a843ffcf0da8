"""`kernelwright tasks --admit`: what it prints, and its exit codes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from judging import INPUTS, task_of
from typer.testing import CliRunner

import tools.admission
from kernelwright import app
from tasks.errors import UnavailableError, UsageError
from tasks.loader import Task, task_names
from tasks.spec import Precision, Target
from tools.admission import Admission, HonestTried, MutantTried, NotTried
from tools.verdict import Verdict

LINEAR = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
"""


def outcome(task: Task, target: Target, _: Callable[[str], None]) -> Admission:
    """As if every task but the first were admitted."""
    seen = task.name != "causal_conv"
    zeros = MutantTried(
        name="zeros",
        does="is zero",
        verdict=Verdict.INCORRECT if seen else Verdict.CORRECT,
        excess=1234.5 if seen else None,
        message="output is wrong" if seen else "",
    )
    float64 = HonestTried(name="float64", does="is exact", verdict=Verdict.CORRECT, used=0.25, message="")
    return Admission(
        task=task.name,
        target=target,
        precision=Precision.FP32,
        mutants=(zeros,),
        honest=(float64,),
        not_tried=(NotTried(name="no bias", reason="it computes the same as the reference"),),
        admitted=seen,
        seconds=1.0,
    )


def test_a_real_problem_file_is_tried(tmp_path: Path) -> None:
    path = task_of(tmp_path, LINEAR, INPUTS).path
    result = CliRunner().invoke(app, ["tasks", str(path), "--admit", "--target", "cpu", "--json"])
    assert result.exit_code == 0, result.output
    admission = Admission.model_validate_json(result.stdout)
    assert admission.admitted
    (copied,) = [tried for tried in admission.mutants if tried.name == "copy of x"]
    # Half of the right answer: off by half of its RMS, over a limit that is a few 1e-6.
    assert copied.excess is not None and 1e4 < copied.excess < 1e6


def test_a_table_with_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.admission, "admit", outcome)
    result = CliRunner().invoke(app, ["tasks", "conv_groupnorm", "--admit", "--target", "cpu"])
    assert result.exit_code == 0
    assert "1.23e+03" in result.stdout
    told = " ".join(result.stdout.split())
    # A mutant's figure is of one check, an honest computation's of all: they must not be told as the same margin.
    assert (
        "conv_groupnorm is admitted: all 1 mutants are incorrect (each at the first check that failed, by at least "
        "1.23e+03 times its limit), all 1 honest computations correct (at all checks, by at most 0.25 of the limit)"
    ) in told
    assert "not tried: no bias: it computes the same as the reference" in result.stdout
    assert "\x1b" not in result.stdout


def test_all_tasks_are_tried_even_after_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.admission, "admit", outcome)
    result = CliRunner().invoke(app, ["tasks", "--admit", "--target", "cpu"])
    assert result.exit_code == 1
    assert "causal_conv is NOT admitted" in result.stdout
    assert "zeros must be incorrect and is correct." in result.stdout
    lines = CliRunner().invoke(app, ["tasks", "--admit", "--target", "cpu", "--json"]).stdout.splitlines()
    assert [json.loads(line)["task"] for line in lines] == list(task_names())
    assert [json.loads(line)["admitted"] for line in lines] == [name != "causal_conv" for name in task_names()]


def test_a_target_without_admit_is_bad_usage() -> None:
    result = CliRunner().invoke(app, ["tasks", "causal_conv", "--target", "cpu"])
    assert isinstance(result.exception, UsageError)
    assert "--admit" in str(result.exception)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_cuda_is_unavailable() -> None:
    result = CliRunner().invoke(app, ["tasks", "causal_conv", "--admit", "--target", "cuda"])
    assert isinstance(result.exception, UnavailableError)
    assert "no GPU" in str(result.exception)
