"""On an NVIDIA GPU: every candidate of tests/candidates/cuda gets its verdict, and honest ones are timed."""

import contextlib
from collections.abc import Iterator

import pytest
from shipped_candidates import CUDA, EXACT_ON_CUDA, Expected, OneJudge

from tasks.spec import Precision, Target
from tools.results import Built, Timed, Verified
from tools.verdict import Verdict

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def judge() -> Iterator[OneJudge]:
    with contextlib.closing(OneJudge(Target.CUDA)) as judge:
        yield judge


def rows(*files: str) -> pytest.MarkDecorator:
    """Runs a test for the named candidates, or for all, each on its task."""
    chosen = [row for row in CUDA if not files or row.file in files]
    return pytest.mark.parametrize("row", chosen, ids=[row.file for row in chosen])


@rows()
def test_verdicts(judge: OneJudge, row: Expected) -> None:
    result = judge.of(row.task).evaluate(row.candidate)
    assert result.verdict in row.verdicts, result.message
    if result.verdict is Verdict.CORRECT:
        assert result.timed is not None
        assert {item.name for item in result.timed.baselines} == {"eager", "cudnn-autotuned", "torch.compile"}
        assert result.timed.floor_ns is not None
        assert 0 < result.timed.floor_ns < result.timed.median_ns
        assert result.timed.card is not None


@rows(*EXACT_ON_CUDA)
def test_exact_fp32_passes_a_tf32_task(judge: OneJudge, row: Expected) -> None:
    result = judge.of(row.task).verify(row.candidate)
    assert isinstance(result, Verified), result
    assert result.precision is Precision.TF32


@rows("causal_naive.py", "fast_groupnorm.py")
def test_a_candidate_against_itself_is_timed(judge: OneJudge, row: Expected) -> None:
    result = judge.of(row.task).benchmark(row.candidate, against=row.candidate)
    assert isinstance(result, Timed), result
    assert len(result.candidate_samples_ns) == len(result.baseline_samples_ns)


@rows("fast_causal.py", "groupnorm_two_pass.py")
def test_compiling_reports_the_kernels(judge: OneJudge, row: Expected) -> None:
    result = judge.of(row.task).compile(row.candidate)
    assert isinstance(result, Built), result
    (extension,) = result.extensions
    assert extension.kernels
    assert all(kernel.registers > 0 for kernel in extension.kernels)
