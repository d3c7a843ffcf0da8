"""Problems with several outputs, whole numbers, other dtypes: right candidates pass, wrong ones don't."""

from pathlib import Path

import pytest
from judging import candidate_of, message_of, task_of, verdict_of

from tasks.spec import Target
from tools.describe import describe
from tools.judge import Judge
from tools.results import Verified
from tools.server_process import Processes
from tools.verdict import Verdict

PAIR = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x + y, (x * y).sum(-1)
"""
NAMED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return {"sum": x + y, "parts": [x * 2, y.mean()]}
"""
TWO = """

def get_inputs():
    return [torch.randn(4, 6, 32), torch.rand(4, 6, 32)]


def get_init_inputs():
    return []
"""
EMBEDDED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, x):
        return self.table(x).transpose(1, 2)
"""
TOKENS = """

def get_inputs():
    return [torch.arange(10).repeat(3, 4)]


def get_init_inputs():
    return []
"""
LARGEST = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.argmax(-1)
"""
HALF = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3)

    def forward(self, x):
        return self.conv(x)
"""
ONE = """

def get_inputs():
    return [torch.randn(4, 8, 32{dtype})]


def get_init_inputs():
    return []
"""


def verdicts(
    processes: Processes, folder: Path, model: str, inputs: str, *changes: tuple[str, str]
) -> list[tuple[Verdict, str]]:
    """Of the reference itself, and of it with each change."""
    with Judge(task_of(folder, model, inputs), Target.CPU, allow_library=True, processes=processes) as judge:
        results = [judge.verify(candidate_of(model)), *(judge.verify(candidate_of(model, one)) for one in changes)]
    assert all(describe(result) for result in results)
    return [(verdict_of(result), message_of(result)) for result in results]


def test_a_tuple_of_outputs(tmp_path: Path, processes: Processes) -> None:
    right, second, swapped, listed, short = verdicts(
        processes,
        tmp_path,
        PAIR,
        TWO,
        ("(x * y).sum(-1)", "(x * y).sum(-1) * 1.001"),
        ("return x + y, (x * y).sum(-1)", "return (x * y).sum(-1), x + y"),
        ("return x + y, (x * y).sum(-1)", "return [x + y, (x * y).sum(-1)]"),
        (", (x * y).sum(-1)", ""),
    )
    assert right == (Verdict.CORRECT, "")
    assert second[0] is Verdict.INCORRECT
    assert "output[1] is wrong" in second[1]
    assert swapped[0] is Verdict.INCORRECT
    assert "output[0] has shape" in swapped[1]
    assert listed == (Verdict.CORRECT, "")
    assert short[0] is Verdict.CONTRACT_ERROR
    assert "returns ['output']; the reference returns ['output[0]', 'output[1]']" in short[1]


def test_a_dict_of_outputs(tmp_path: Path, processes: Processes) -> None:
    right, wrong, renamed, reordered = verdicts(
        processes,
        tmp_path,
        NAMED,
        TWO,
        ("y.mean()", "y.sum()"),
        ('"sum"', '"total"'),
        ('{"sum": x + y, "parts": [x * 2, y.mean()]}', '{"parts": [x * 2, y.mean()], "sum": x + y}'),
    )
    assert right == (Verdict.CORRECT, "")
    assert wrong[0] is Verdict.INCORRECT
    assert "output['parts'][1] is wrong" in wrong[1]
    assert renamed[0] is Verdict.CONTRACT_ERROR
    assert reordered == (Verdict.CORRECT, ""), "a dict has no order that a caller sees"


def test_inputs_of_whole_numbers(tmp_path: Path, processes: Processes) -> None:
    right, wrong = verdicts(processes, tmp_path, EMBEDDED, TOKENS, ("self.table(x)", "self.table(x % 9)"))
    assert right == (Verdict.CORRECT, "")
    assert wrong[0] is Verdict.INCORRECT


def test_outputs_of_whole_numbers_must_be_equal(tmp_path: Path, processes: Processes) -> None:
    """With nothing but whole numbers there was no check to describe, and describing the result failed."""
    right, wrong, short = verdicts(
        processes,
        tmp_path,
        LARGEST,
        ONE.format(dtype=""),
        ("x.argmax(-1)", "x.argmin(-1)"),
        ("x.argmax(-1)", "x.argmax(-1).int()"),
    )
    assert right == (Verdict.CORRECT, "")
    assert wrong[0] is Verdict.INCORRECT
    assert "must be equal" in wrong[1]
    assert "dtype torch.int32; the reference's has torch.int64" in short[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_problems(tmp_path: Path, processes: Processes, dtype: str) -> None:
    model = HALF.replace("nn.Conv1d(8, 8, 3)", f"nn.Conv1d(8, 8, 3, dtype=torch.{dtype})")
    exact = (
        "return self.conv(x)",
        "wide = (t.double() for t in (x, self.conv.weight, self.conv.bias))\n"
        f"return nn.functional.conv1d(*wide).to(torch.{dtype})",
    )
    inputs = ONE.format(dtype=f", dtype=torch.{dtype}")
    right, exact_one, no_bias, wide = verdicts(
        processes,
        tmp_path,
        model,
        inputs,
        exact,
        ("return self.conv(x)", "return self.conv(x) - self.conv.bias.view(-1, 1)"),
        ("return self.conv(x)", "return self.conv(x).float()"),
    )
    assert right == (Verdict.CORRECT, "")
    assert exact_one == (Verdict.CORRECT, "")
    assert no_bias[0] is Verdict.INCORRECT
    assert "dtype torch.float32" in wide[1]


def test_every_comparison_is_counted(tmp_path: Path, processes: Processes) -> None:
    with Judge(
        task_of(tmp_path, LARGEST, ONE.format(dtype="")), Target.CPU, allow_library=True, processes=processes
    ) as judge:
        result = judge.verify(candidate_of(LARGEST))
    assert isinstance(result, Verified)
    assert len(result.checks) == 12
