"""On an NVIDIA GPU with compute-sanitizer: errors that outputs do not show are found, and honest kernels are clean."""

from collections.abc import Iterator

import pytest
from shipped_candidates import CORRECT, CUDA, Expected

from tasks.loader import find_task
from tasks.spec import Target
from tools.judge import Judge
from tools.sanitizer import last_word
from tools.sanitizer_results import Sanitized
from tools.session import Session
from tools.subject import Limits
from tools.toolchain import find_sanitizer
from tools.verdict import Verdict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_sanitizer() is None, reason="needs compute-sanitizer, of the CUDA toolkit or its wheel"),
    pytest.mark.timeout(1200),
]

FAULTY = {"causal_reads_beyond.py", "causal_races.py", "causal_reads_unwritten.py"}


def shipped(name: str) -> Expected:
    (row,) = (row for row in CUDA if row.file == name)
    return row


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(find_task("causal_conv"), Target.CUDA) as judge:
        yield judge


def outcomes(result: Sanitized) -> dict[str, str]:
    return {run.tool: run.outcome for run in result.runs}


@pytest.mark.parametrize(
    ("name", "tool", "verdict", "kind"),
    [
        ("causal_reads_beyond.py", "memcheck", Verdict.CRASHED, "Invalid __global__ read of size 4 bytes"),
        ("causal_races.py", "racecheck", Verdict.INCORRECT, "a race between accesses of type"),
        (
            "causal_reads_unwritten.py",
            "initcheck",
            Verdict.INCORRECT,
            "Uninitialized __global__ memory read of size 4 bytes",
        ),
    ],
)
def test_an_error_that_outputs_do_not_show_is_found_by_its_tool(
    judge: Judge, name: str, tool: str, verdict: Verdict, kind: str
) -> None:
    result = judge.evaluate(shipped(name).candidate, strict=True)
    assert result.sanitizer is not None, result.message
    run = next(run for run in result.sanitizer.runs if run.tool == tool)
    assert run.outcome == "findings", run
    assert run.errors[0].kind.startswith(kind)
    assert run.errors[0].kernel == "causal_conv_kernel"
    assert result.verdict is verdict
    assert result.benchmark is None


def test_the_other_tools_have_nothing_against_a_race(judge: Judge) -> None:
    result = judge.evaluate(shipped("causal_races.py").candidate, strict=True)
    assert result.sanitizer is not None
    assert outcomes(result.sanitizer) == {"memcheck": "clean", "racecheck": "findings", "initcheck": "clean"}


def test_a_right_kernel_stays_correct_and_is_timed(judge: Judge) -> None:
    result = judge.evaluate(shipped("causal_naive.py").candidate, strict=True)
    assert result.verdict is Verdict.CORRECT, result.message
    assert result.sanitizer is not None
    assert outcomes(result.sanitizer) == dict.fromkeys(("memcheck", "racecheck", "initcheck"), "clean"), (
        result.sanitizer
    )
    assert result.timed is not None


@pytest.mark.parametrize(
    "row", [row for row in CUDA if row.verdicts == CORRECT and row.file not in FAULTY], ids=lambda row: str(row.file)
)
def test_no_honest_kernel_is_accused(row: Expected) -> None:
    session = Session(find_task(row.task), Target.CUDA, Limits(), lambda _: None)
    try:
        result = last_word(session, row.candidate)
    finally:
        session.close()
    assert result.verdict is Verdict.CORRECT, result.message
    assert outcomes(result) == dict.fromkeys(("memcheck", "racecheck", "initcheck"), "clean"), result.runs
