"""What the judge says of outputs: right ones pass, and every mutant of a reference fails with a message that helps."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import CONVOLUTION, NORMALISED, candidate_of, message_of, task_of, verdict_of

from tasks.spec import Target
from tools.judge import Judge
from tools.results import Verified
from tools.server_process import Processes
from tools.verdict import Verdict


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    task = task_of(tmp_path_factory.mktemp("normalised"), NORMALISED)
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        yield judge


LAST = "return z"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAST, "return z"),
        (LAST, "return z.to(torch.float64).to(torch.float32)"),
        (LAST, "return z.transpose(1, 2).contiguous().transpose(1, 2)"),
        (
            "y = self.conv(x)",
            "y = functional.conv1d(x.double(), self.conv.weight.double(), self.conv.bias.double(), padding=1)\n"
            "y = functional.group_norm(y, 2, self.norm.weight.double(), self.norm.bias.double())\n"
            "return torch.relu(y).float()",
        ),
    ],
    ids=["itself", "there and back", "not contiguous", "computed in float64"],
)
def test_right_outputs_pass(judge: Judge, old: str, new: str) -> None:
    result = judge.verify(candidate_of(NORMALISED, (old, new)))
    assert isinstance(result, Verified), message_of(result)
    assert len(result.checks) == 12
    assert all(check.rms_error <= check.rms_limit for check in result.checks)


MUTANTS = {
    "zeros": (LAST, "return torch.zeros_like(z)"),
    "ones": (LAST, "return torch.ones_like(z)"),
    "the input": (LAST, "return x"),
    "a copy of the input": (LAST, "return x.clone()"),
    "no activation": (LAST, "return y"),
    "no normalisation": ("y = self.norm(y)", "pass"),
    "no bias": ("y = self.conv(x)", "y = functional.conv1d(x, self.conv.weight, padding=1)"),
    "default norm parameters": ("y = self.norm(y)", "y = functional.group_norm(y, 2)"),
    "no norm bias": ("y = self.norm(y)", "y = functional.group_norm(y, 2, self.norm.weight)"),
    "another epsilon": ("nn.GroupNorm(2, 4)", "nn.GroupNorm(2, 4, eps=1e-4)"),
    "other groups": ("nn.GroupNorm(2, 4)", "nn.GroupNorm(1, 4)"),
    "taps reversed": (
        "y = self.conv(x)",
        "y = functional.conv1d(x, self.conv.weight.flip(2), self.conv.bias, padding=1)",
    ),
    "shifted by one": (LAST, "return torch.roll(z, 1, -1)"),
    "channels swapped": (LAST, "return z.flip(1)"),
    "samples swapped": (LAST, "return z.flip(0)"),
    "no tail": (LAST, "z[..., z.shape[-1] // 64 * 64 :] = 0\nreturn z"),
    "one element": (LAST, "z[0, 0, -1] += 1.0\nreturn z"),
    "noise": (LAST, "return z + 1e-3 * torch.randn_like(z)"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_fail(judge: Judge, mutant: str) -> None:
    result = judge.verify(candidate_of(NORMALISED, MUTANTS[mutant]))
    assert verdict_of(result) is Verdict.INCORRECT
    assert re.search(r"output is wrong \(N=\d+ L=\d+, .*\): relative RMS error", message_of(result))


@pytest.mark.parametrize(
    ("new", "verdict", "message"),
    [
        ("return z.double()", Verdict.INCORRECT, "dtype torch.float64; the reference's has torch.float32"),
        ("return z.half()", Verdict.INCORRECT, "dtype torch.float16"),
        ("return z[..., :-1]", Verdict.INCORRECT, "has shape"),
        ("return z.unsqueeze(0)", Verdict.INCORRECT, "has shape"),
        ("return z.repeat(1, 1, 10_000_000)", Verdict.INCORRECT, "far larger than the reference's"),
        ("return (z,)", Verdict.CONTRACT_ERROR, "returns ['output[0]']; the reference returns ['output']"),
        ("return z, z", Verdict.CONTRACT_ERROR, "['output[0]', 'output[1]']"),
        ("return {'z': z}", Verdict.CONTRACT_ERROR, "the reference returns ['output']"),
        ("return ()", Verdict.CONTRACT_ERROR, "forward returns nothing"),
        ("return None", Verdict.CONTRACT_ERROR, "NoneType"),
        ("return z.numpy()", Verdict.CONTRACT_ERROR, "ndarray"),
        ("return z.to_sparse()", Verdict.CONTRACT_ERROR, "dense"),
        ("return float(z.sum())", Verdict.CONTRACT_ERROR, "float"),
    ],
)
def test_outputs_of_another_form(judge: Judge, new: str, verdict: Verdict, message: str) -> None:
    result = judge.verify(candidate_of(NORMALISED, (LAST, new)))
    assert verdict_of(result) is verdict
    assert message in message_of(result)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_nan_and_infinity_are_found_and_placed(judge: Judge, value: str) -> None:
    result = judge.verify(candidate_of(NORMALISED, (LAST, f"z[0, 2, 0] = float('{value}')\nreturn z")))
    assert verdict_of(result) is Verdict.INCORRECT
    assert f"NaN or infinite where the reference is not (or the reverse), first at [0, 2, 0]: {value}" in message_of(
        result
    )


def test_short_arithmetic_is_told_as_rounding(tmp_path: Path, processes: Processes) -> None:
    """R3. Of a convolution alone: a norm behind it may make large errors of small ones."""
    convolution = (
        "weight, x = self.conv.weight.half().float(), x.half().float()\n"
        "return functional.conv1d(x, weight, self.conv.bias, padding=1)"
    )
    with Judge(task_of(tmp_path, CONVOLUTION), Target.CPU, allow_library=True, processes=processes) as judge:
        result = judge.verify(candidate_of(CONVOLUTION, ("return self.conv(x)", convolution)))
    assert verdict_of(result) is Verdict.INCORRECT
    assert "rounding" in message_of(result)
    assert "precision class is fp32" in message_of(result)


def test_a_gross_mistake_is_not_told_as_rounding(judge: Judge) -> None:
    message = message_of(judge.verify(candidate_of(NORMALISED, MUTANTS["shifted by one"])))
    assert "rounding" not in message
    assert "of the elements are off" in message


def test_where_the_wrong_elements_lie(judge: Judge) -> None:
    zeroed = "z[..., : min(2, z.shape[-1] // 8)] += 1.0\nreturn z"
    message = message_of(judge.verify(candidate_of(NORMALISED, (LAST, zeroed))))
    assert "all of them between 0 and 1 along the last dimension" in message
    assert message.endswith(", at the left edge.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAST, "x.mul_(2.0)\nreturn z"),
        (LAST, "x[0, 0, 0] = -x[0, 0, 0]\nreturn z"),
        ("z = torch.relu(y)", "z = x.copy_(torch.relu(y))"),
    ],
    ids=["scaled", "one sign", "computed in place"],
)
def test_a_changed_input_is_seen_although_the_output_is_right(judge: Judge, old: str, new: str) -> None:
    result = judge.verify(candidate_of(NORMALISED, (old, new)))
    assert verdict_of(result) is Verdict.INPUT_MUTATED
    assert "changed its input 'x' (N=" in message_of(result)


def test_a_zeroed_input_is_told_before_the_wrong_output(judge: Judge) -> None:
    """R11."""
    result = judge.verify(candidate_of(NORMALISED, (LAST, "x.zero_()\nreturn torch.zeros_like(z)")))
    assert verdict_of(result) is Verdict.INPUT_MUTATED


def test_memory_that_was_never_written_holds_no_answer(judge: Judge) -> None:
    """R10: by luck it might, so it is asked twenty times."""
    body = NORMALISED[NORMALISED.index("        y = self.conv(x)") :].strip()
    empty = candidate_of(NORMALISED, (body, "return torch.empty_like(x)"))
    assert [verdict_of(judge.verify(empty)) for _ in range(20)] == [Verdict.INCORRECT] * 20


def test_an_exception_names_the_candidates_line_and_the_shape(judge: Judge) -> None:
    candidate = candidate_of(NORMALISED, (LAST, "if x.shape[-1] > 40:\n    raise ValueError('odd length')\nreturn z"))
    line = candidate.text[: candidate.text.index("raise ValueError")].count("\n") + 1
    result = judge.verify(candidate)
    assert verdict_of(result) is Verdict.CRASHED
    assert f"ValueError: odd length (candidate.py: line {line}, in forward)" in message_of(result)
    assert re.search(r"\(N=\d+ L=\d+, ", message_of(result))


def test_arithmetic_by_pytorch_is_library_compute_unless_allowed(judge: Judge, processes: Processes) -> None:
    with Judge(judge.task, Target.CPU, processes=processes) as strict:
        result = strict.verify(candidate_of(NORMALISED))
        # Wrong on every input: of two values in a group, a norm leaves +1 and -1, with or without a bias before it.
        wrong = strict.verify(candidate_of(NORMALISED, ("return z", "return z + 1.0")))
    assert verdict_of(result) is Verdict.LIBRARY_COMPUTE
    for operator in ("convolution", "group_norm", "relu"):
        assert operator in message_of(result)
    assert verdict_of(wrong) is Verdict.INCORRECT, "what is wrong is told first"
