"""Every file of the attack suite gets the verdict that its docstring names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evals.attack_files import AttackFile, attack_files, read_attack
from evals.attacks import AttackSuite
from tasks.errors import UsageError
from tasks.spec import Target
from tools.verdict import Verdict

CPU = attack_files(Target.CPU)
CUDA = attack_files(Target.CUDA)


@pytest.fixture(scope="module")
def on_the_host() -> Iterator[AttackSuite]:
    with AttackSuite(Target.CPU) as suite:
        yield suite


@pytest.fixture(scope="module")
def on_the_gpu() -> Iterator[AttackSuite]:
    with AttackSuite(Target.CUDA) as suite:
        yield suite


@pytest.mark.parametrize("file", CPU, ids=[file.name for file in CPU])
def test_on_the_host(on_the_host: AttackSuite, file: AttackFile) -> None:
    line = on_the_host.run(file)
    assert line.ok, line.problem


@pytest.mark.gpu
@pytest.mark.parametrize("file", CUDA, ids=[file.name for file in CUDA])
def test_on_the_gpu(on_the_gpu: AttackSuite, file: AttackFile) -> None:
    line = on_the_gpu.run(file)
    assert line.ok, line.problem


def test_names_are_unique_and_honest_candidates_are_expected_to_be_correct() -> None:
    for files in (CPU, CUDA):
        assert len({file.name for file in files}) == len(files)
        assert all(file.expected == (Verdict.CORRECT,) for file in files if file.kind == "honest")


@pytest.mark.parametrize(
    ("docstring", "problem"),
    [
        ("Tries.", "no line `Expected"),
        ("Tries.\n\nExpected: incorrect\nTask: causal_silu", "no line `Seen"),
        ("Tries.\n\nExpected: wrong\nSeen: here\nTask: causal_silu", "names no verdicts"),
        ("Tries.\n\nExpected: incorrect, crashed\nSeen: here\nTask: causal_silu", "why luck decides"),
        ("Tries.\n\nExpected: incorrect\nSeen: here\nTask: nothing", "there is no .*nothing.py"),
        ("Tries.\n\nExpected: correct\nSeen: here\nTime: short\nTask: causal_silu", "is not of the form"),
    ],
)
def test_a_file_that_does_not_say_what_it_must(tmp_path: Path, docstring: str, problem: str) -> None:
    path = tmp_path / "attack.py"
    path.write_text(f'"""{docstring}\n"""\n')
    with pytest.raises(UsageError, match=problem):
        read_attack(path, "attack")


def test_a_docstring_is_read(tmp_path: Path) -> None:
    path = tmp_path / "attack.py"
    path.write_text(
        '"""Tries a thing.\n\nExpected: incorrect, crashed (luck\ndecides)\nSeen: here and\nthere\n'
        'Time: at least 20 ms\nTask: causal_silu\n"""\n'
    )
    file = read_attack(path, "attack")
    assert (file.name, file.tries, file.seen) == ("attack", "Tries a thing.", "here and there")
    assert file.expected == (Verdict.INCORRECT, Verdict.CRASHED)
    assert file.why_several == "luck decides"
    assert (file.least_ms, file.speedup_below) == (20.0, None)
    assert file.task.name == "causal_silu.py"


def test_a_name_that_is_not_in_the_suite() -> None:
    with pytest.raises(UsageError, match="no attack for cpu is named nothing"):
        attack_files(Target.CPU, ["nothing"])
