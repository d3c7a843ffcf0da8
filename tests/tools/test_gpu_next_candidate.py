"""On an NVIDIA GPU: what spoils a CUDA context or holds the device costs the next candidate nothing (R8, R20, R25)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import Fault, Verified
from tools.subject import Limits
from tools.verdict import Verdict

pytestmark = pytest.mark.gpu

TESTS = Path(__file__).resolve().parents[1]
LIMITS = Limits(load_s=30.0, call_s=10.0)


def text_of(file: str) -> Candidate:
    return Candidate((TESTS / file).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(find_task(TESTS / "attacks/tasks/causal_silu.py"), Target.CUDA, limits=LIMITS) as judge:
        yield judge


@pytest.mark.parametrize(
    ("file", "verdict", "message"),
    [
        ("attacks/cuda/reads_a_wild_address.py", Verdict.CRASHED, "illegal memory access"),
        ("attacks/cuda/endless_kernel.py", Verdict.TIMEOUT, "no answer within 10 s during call"),
        ("attacks/cuda/too_much_shared_memory.py", Verdict.CRASHED, "a kernel launch failed"),
    ],
)
def test_the_next_candidate_is_verified_in_the_same_session(
    judge: Judge, file: str, verdict: Verdict, message: str
) -> None:
    result = judge.verify(text_of(file))
    assert isinstance(result, Fault)
    assert result.verdict is verdict, result.message
    assert message in result.message
    following = judge.verify(text_of("honest/cuda/plain.py"))
    assert isinstance(following, Verified), following
