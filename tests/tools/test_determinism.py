"""The same inputs, given several times: each answer must be right; whether all have the same bits is only told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import NORMALISED, candidate_of, message_of, task_of, verdict_of

from tasks.spec import Target
from tools.judge import Judge
from tools.results import Determinism, Verified
from tools.server_process import Processes
from tools.verdict import Verdict

LAST = "return z"
# The second instance is given five other inputs before those that are given ten times.
COUNTED = "self.count = getattr(self, 'count', 0) + 1\n"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    with Judge(
        task_of(tmp_path_factory.mktemp("same"), NORMALISED), Target.CPU, allow_library=True, processes=processes
    ) as judge:
        yield judge


def determinism_of(judge: Judge, new: str) -> Determinism:
    result = judge.verify(candidate_of(NORMALISED, (LAST, new)))
    assert isinstance(result, Verified), message_of(result)
    assert result.determinism is not None
    return result.determinism


def test_equal_answers_are_told_as_such(judge: Judge) -> None:
    found = determinism_of(judge, LAST)
    assert (found.calls, found.identical, found.largest_difference) == (10, 10, 0.0)


def test_another_order_of_additions_is_no_fault_and_is_measured(judge: Judge) -> None:
    found = determinism_of(judge, "return z * (1 + 1e-6 * torch.rand_like(z))")
    # Of n elements the largest is at most sqrt(n) times their RMS; a channel has at most 3 * 123 here.
    assert (found.calls, found.identical) == (10, 1)
    assert 1e-7 < found.largest_difference < 2e-5


def test_one_answer_of_other_bits_is_counted(judge: Judge) -> None:
    """The first answer must be kept: later ones are written where it was."""
    found = determinism_of(judge, f"{COUNTED}return z * (1 + 1e-6 * (self.count == 9))")
    assert (found.calls, found.identical) == (10, 9)
    assert found.largest_difference > 1e-7


@pytest.mark.parametrize("call", [2, 10])
def test_an_answer_that_is_wrong_once_in_ten_is_incorrect(judge: Judge, call: int) -> None:
    wrong = f"{COUNTED}z[0, 0, 0] += 1.0 * (self.count == {5 + call})\nreturn z"
    result = judge.verify(candidate_of(NORMALISED, (LAST, wrong)))
    assert verdict_of(result) is Verdict.INCORRECT
    assert f"call {call} of 10 with the same inputs" in message_of(result)
    assert "look for a race" in message_of(result)


def test_an_output_that_is_missing_once_is_seen(tmp_path: Path, processes: Processes) -> None:
    two = NORMALISED.replace(LAST, "return y, z")
    with Judge(task_of(tmp_path, two), Target.CPU, allow_library=True, processes=processes) as judge:
        once = candidate_of(two, ("return y, z", f"{COUNTED}return (y, z) if self.count != 10 else (y,)"))
        result = judge.verify(once)
    assert verdict_of(result) is Verdict.CONTRACT_ERROR
    assert "call 5 of 10" in message_of(result)
