"""Machine code of a candidate's kernel or function, from the library that was built; what is missing is said."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from shipped_candidates import CPU, CUDA

from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.describe import describe
from tools.disassembly import LISTED
from tools.disassembly_results import Disassembled
from tools.judge import Judge
from tools.results import Fault
from tools.server_process import Processes
from tools.toolchain import find_cuobjdump
from tools.verdict import Verdict


def shipped(rows: object, name: str) -> Candidate:
    assert isinstance(rows, list | tuple)
    (row,) = (row for row in rows if row.file == name)
    candidate: Candidate = row.candidate
    return candidate


@pytest.fixture(scope="module")
def host(processes: Processes) -> Iterator[Judge]:
    with Judge(find_task("causal_conv"), Target.CPU, processes=processes) as judge:
        yield judge


@pytest.fixture(scope="module")
def cuda(processes_for_cuda: Processes) -> Iterator[Judge]:
    with Judge(find_task("causal_conv"), Target.CUDA, processes=processes_for_cuda) as judge:
        yield judge


def code_of(judge: Judge, candidate: Candidate, function: str | None = None) -> Disassembled:
    result = judge.disassemble(candidate, function)
    assert isinstance(result, Disassembled), result
    return result


def test_the_loop_of_a_host_function_is_shown(host: Judge) -> None:
    result = code_of(host, shipped(CPU, "causal_naive.py"))
    assert result.function.startswith("causal_conv(")
    assert sum(result.mix.values()) == result.instructions > 20
    assert 0 < len(result.listing.splitlines()) <= LISTED
    # Without contraction there would be vmulps and vaddps.
    assert "ps " in result.listing, "the inner loop of this kernel is one that compilers vectorise"


@pytest.mark.parametrize(
    ("script", "said"), [("echo no symbols; exit 3", "ended with code 3"), ("sleep 60", "was stopped after 1 s")]
)
def test_a_program_that_fails_on_a_library_ends_no_rollout(
    host: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    """A candidate with ten thousand functions could have had `disassemble` end its rollout as our fault."""
    program = tmp_path / "objdump"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("tools.disassembly.shutil.which", lambda _: str(program))
    monkeypatch.setattr("tools.disassembly._TIMEOUT_S", 1.0)
    result = code_of(host, shipped(CPU, "causal_naive.py"))
    assert f"objdump {said} on the candidate's library" in result.note
    assert result.function == ""
    assert said in describe(result)


@pytest.mark.nvcc
@pytest.mark.skipif(find_cuobjdump() is None, reason="needs cuobjdump, of the CUDA toolkit or of Triton")
def test_a_kernel_is_found_by_a_part_of_its_name(cuda: Judge) -> None:
    candidate = shipped(CUDA, "fast_causal.py")
    first = code_of(cuda, candidate)
    pack = code_of(cuda, candidate, "pack_kernel")
    assert pack.function == "pack_kernel(float const*, float*)"
    assert pack.function in first.others
    assert "HMMA" not in pack.mix
    assert first.mix["HMMA"] >= 8, "the kernel multiplies on tensor cores"
    assert first.mix["LDGSTS.128"] >= 1, "it copies with cp.async"
    assert "HMMA" in first.listing
    assert first.architecture.startswith("sm_")
    assert f"of {first.instructions} instructions are listed" in first.note
    text = describe(first)
    assert "counted once each, loops too: HMMA " in text
    assert "other functions: " in text


@pytest.mark.nvcc
@pytest.mark.skipif(find_cuobjdump() is None, reason="needs cuobjdump, of the CUDA toolkit or of Triton")
def test_a_name_that_no_kernel_has_is_answered_with_those_there_are(cuda: Judge) -> None:
    result = code_of(cuda, shipped(CUDA, "causal_naive.py"), "softmax")
    assert result.function == ""
    assert result.note == "no function's name holds 'softmax'."
    assert any(name.startswith("causal_conv_kernel") for name in result.others)


@pytest.mark.parametrize(
    ("target", "finder", "said"),
    [
        (Target.CPU, "shutil.which", "objdump is not installed"),
        (Target.CUDA, "tools.disassembly.find_cuobjdump", "cuobjdump is not installed"),
    ],
)
def test_a_missing_program_is_said_and_nothing_is_built(
    monkeypatch: pytest.MonkeyPatch, target: Target, finder: str, said: str
) -> None:
    monkeypatch.setattr(finder, lambda *_: None)
    with Judge(find_task("causal_conv"), target) as judge:
        result = judge.disassemble(Candidate("this is no Python"))
    assert isinstance(result, Disassembled)
    assert result.note.startswith(said)
    assert describe(result).startswith("nothing disassembled: ")


def test_a_candidate_that_does_not_build_is_a_fault(host: Judge) -> None:
    result = host.disassemble(shipped(CPU, "causal_syntax_error.py"))
    assert isinstance(result, Fault)
    assert (result.verdict, result.stage) == (Verdict.BUILD_FAILED, "disassembly")
