"""Every candidate of tests/candidates/cpu gets the verdict that its README states, on the shipped tasks."""

import contextlib
from collections.abc import Iterator

import pytest
from shipped_candidates import CPU, CUDA, FOLDER, Expected, OneJudge

from tasks.spec import Target
from tools.judge import Judge
from tools.results import Built, Evaluation, Fault
from tools.server_process import Processes
from tools.verdict import Verdict

pytestmark = pytest.mark.usefixtures("small_caches")


@pytest.fixture(scope="module")
def judge(processes: Processes) -> Iterator[OneJudge]:
    with contextlib.closing(OneJudge(Target.CPU, processes, fixed_candidates=True)) as judge:
        yield judge


@pytest.mark.parametrize("expected", CPU, ids=[row.file for row in CPU])
def test_verdicts(judge: OneJudge, expected: Expected) -> None:
    result = evaluated(judge.of(expected.task), expected)
    assert result.verdict in expected.verdicts, result.message
    assert (result.timed is not None) == (expected.file == "causal_naive.py")
    if result.timed is not None:
        assert {item.name for item in result.timed.baselines} == {"eager", "torch.compile"}
    if result.verdict is Verdict.BUILD_FAILED:
        assert isinstance(result.build, Fault)
        assert next(item.line for item in result.build.diagnostics if item.severity == "error") == 18


def evaluated(judge: Judge, expected: Expected) -> Evaluation:
    """Timed are one right candidate and those that only timing shows to be wrong: a measurement takes seconds, and
    PyTorch's compiler, for the baseline of each task, still longer."""
    if expected.file == "causal_naive.py" or Verdict.STALE_OUTPUT in expected.verdicts:
        return judge.evaluate(expected.candidate)
    build = judge.compile(expected.candidate)
    verify = judge.verify(expected.candidate) if isinstance(build, Built) else None
    return Evaluation(
        candidate=expected.candidate.id, task=expected.task, target=Target.CPU, build=build, verify=verify
    )


@pytest.mark.parametrize("rows", [CPU, CUDA], ids=["cpu", "cuda"])
def test_every_file_is_listed(rows: tuple[Expected, ...]) -> None:
    folder = FOLDER / rows[0].target
    assert sorted(row.file for row in rows) == sorted(path.name for path in folder.glob("*.py"))


@pytest.mark.parametrize("row", [*CPU, *CUDA], ids=lambda row: f"{row.target}-{row.file}")
def test_the_readme_states_the_same(row: Expected) -> None:
    section = (FOLDER / "README.md").read_text().split("## Target ")[1 if row.target is Target.CPU else 2]
    (line,) = (line for line in section.splitlines() if line.startswith(f"| `{row.file}`"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == f"`{row.task}`"
    assert {word.strip("` ") for word in cells[2].split(";")[0].split(" or ")} == set(row.verdicts)
