"""A wrong candidate is told what its mistake looks like: by the judge, which asks it again and knows the reference."""

from collections.abc import Iterator

import pytest
from judging import CONVOLUTION, LONG_INPUTS, NORMALISED, candidate_of, task_of
from shipped_candidates import CPU

from tasks.loader import find_task
from tasks.spec import Target
from tools import mistakes
from tools.candidate import Candidate
from tools.describe import describe
from tools.judge import Judge
from tools.results import Fault
from tools.server_process import Processes
from tools.verdict import Verdict

FORWARD = "return self.conv(x)"


@pytest.fixture(scope="module")
def convolution(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    task = task_of(tmp_path_factory.mktemp("mistakes"), CONVOLUTION, LONG_INPUTS)
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        yield judge


@pytest.fixture(scope="module")
def normalised(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    task = task_of(tmp_path_factory.mktemp("normalised"), NORMALISED, LONG_INPUTS)
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        yield judge


def likely(judge: Judge, candidate: Candidate) -> str:
    result = judge.verify(candidate)
    assert isinstance(result, Fault)
    assert result.verdict is Verdict.INCORRECT, result.message
    return result.likely


def with_weight(weight: str) -> str:
    return f"return functional.conv1d(x, {weight}, self.conv.bias, padding=1)"


@pytest.mark.parametrize(
    ("instead", "phrase"),
    [
        (with_weight("self.conv.weight.flip(-1)"), "takes the taps of conv.weight in reverse order"),
        (with_weight("self.conv.weight.transpose(0, 1)"), "takes output for input channels of conv.weight"),
        (
            with_weight("self.conv.weight.reshape(4, 3, 4).transpose(1, 2)"),
            "reads conv.weight as (out, taps, in), it is (out, in, taps)",
        ),
        ("return functional.conv1d(x, self.conv.weight, padding=1)", "takes conv.bias as 0"),
        (
            "return functional.conv1d(x, self.conv.weight, self.conv.bias, padding=2, dilation=2)",
            "changes the dilation of conv1d",
        ),
        (
            "return functional.pad(self.conv(x), (1, 0))[..., :-1]",
            "off by 1 along the length: output t is what t - 1 should be",
        ),
        ("return self.conv(x) + torch.rand(())", "a race, or memory that was never written"),
        (
            "y = self.conv(x)\nif y.shape[-1] == 1:\n    y = y + 1.0\nreturn y",
            "something about this shape, for on ",
        ),
    ],
)
def test_the_mistake_is_named(convolution: Judge, instead: str, phrase: str) -> None:
    found = likely(convolution, candidate_of(CONVOLUTION, (FORWARD, instead)))
    assert phrase in found, found


@pytest.mark.parametrize(
    ("old", "new", "phrase"),
    [
        ("y = self.norm(y)", "pass", "answers argument 1 of group_norm (call 1) instead of its result"),
        ("z = torch.relu(y)", "z = y", "answers argument 1 of relu (call 2) instead of its result"),
        (
            "y = self.norm(y)",
            "y = functional.group_norm(y, 2, None, self.norm.bias)",
            "takes norm.weight as 1",
        ),
    ],
)
def test_an_operation_left_out_is_named(normalised: Judge, old: str, new: str, phrase: str) -> None:
    found = likely(normalised, candidate_of(NORMALISED, (old, new)))
    assert phrase in found, found


def test_what_looks_like_nothing_known_is_not_guessed(convolution: Judge) -> None:
    assert likely(convolution, candidate_of(CONVOLUTION, (FORWARD, "return torch.sin(7 * self.conv(x))"))) == ""


def test_a_candidate_that_fails_when_asked_again_is_incorrect_still(convolution: Judge) -> None:
    twice = "self.calls = getattr(self, 'calls', 0) + 1\nassert self.calls < 2\nreturn self.conv(x) + 1.0"
    found = likely(convolution, candidate_of(CONVOLUTION, (FORWARD, twice)))
    assert found == "something that changes from call to call: asked again, the candidate ends as crashed."


def test_the_model_is_told(convolution: Judge) -> None:
    wrong = candidate_of(CONVOLUTION, (FORWARD, with_weight("self.conv.weight.flip(-1)")))
    lines = describe(convolution.verify(wrong)).splitlines()
    assert lines[1].startswith("likely: the output is that of a kernel that takes the taps of conv.weight in reverse")


@pytest.mark.parametrize(
    ("file", "phrase"),
    [
        # A seed transcript's mistake: tap 0 read as the present, and the future instead of the past.
        (
            "causal_wrong_tap_order.py",
            "takes the taps of conv.weight in reverse order, and comes 3 early along the length",
        ),
        ("groupnorm_no_affine.py", "takes norm.weight as 1 and norm.bias as 0"),
        ("prenorm_train_frozen_statistics.py", "bn.running_mean is as it was before the call"),
    ],
)
def test_the_mistakes_of_the_shipped_candidates_are_named(file: str, phrase: str, processes: Processes) -> None:
    (row,) = (row for row in CPU if row.file == file)
    with Judge(find_task(row.task), Target.CPU, processes=processes) as judge:
        assert phrase in likely(judge, row.candidate)


def test_a_diagnosis_that_fails_takes_no_verdict_away(convolution: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference with a mistake in it answered fewer outputs; the candidate was said to be a fault of the harness."""

    def failing(*_: object) -> list[str]:
        raise IndexError("list index out of range")

    monkeypatch.setattr(mistakes, "matching", failing)
    assert likely(convolution, candidate_of(CONVOLUTION, (FORWARD, with_weight("self.conv.weight.flip(-1)")))) == ""
