"""The benchmark of builds: what it compares, what it skips and what it counts; nothing is built here."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from build_records import (
    CorpusCandidate,
    DeviceCode,
    Once,
    OwnBuild,
    PlainBuild,
    Row,
    append,
    chosen_candidates,
    is_done,
    read_lines,
    read_rows,
    table,
)
from device_code import differences, digests, without_file_names

from tasks.errors import UsageError
from tools.candidate import Candidate

LISTING = """
	code for sm_90a
		Function : {name}
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                                 /* 0x00000a00ff017b82 */
                                                                                          /* 0x000ff00000000800 */
        /*0010*/                   LDC.64 R2, c[0x4][{slot}] ;                            /* 0x0000820000067ab9 */
                                                                                          /* 0x000fe20000000a00 */
        /*0020*/                   {operation} R5, R5, R6 ;                               /* 0x0000000605057221 */
                                                                                          /* 0x000fca0000000000 */
"""
PLAIN = "_ZN55_GLOBAL__N__1f0aa8f2_7_cuda_cu_6b5f3a11_1234567_12345676kernelEPKf"
OURS = "_ZN48_GLOBAL__N__77c2d0e9_7_host_cu_0a0b0c0d_111_22226kernelEPKf"
CANDIDATE = CorpusCandidate("class ModelNew: ...\n", "causal_conv")
BUILT = OwnBuild(whole_s=3.0, build_s=2.5, paths=("fast",), keys=("k",))


def listing(name: str = "scale", slot: str = "0x8", operation: str = "FADD") -> str:
    """What cuobjdump prints for one function."""
    return LISTING.format(name=name, slot=slot, operation=operation)


def row(name: str = "one", plain: PlainBuild | None = None, **changes: object) -> Row:
    """A candidate that is built in both of our arms."""
    values: dict[str, object] = {
        "name": name,
        "task": CANDIDATE.task,
        "candidate": Candidate(CANDIDATE.text).id,
        "cores": 16,
        "plain": plain,
        "cold": BUILT,
        "cached": BUILT.model_copy(update={"whole_s": 0.25, "cached": True}),
        "code": DeviceCode(functions=1) if plain is not None else None,
    }
    return Row.model_validate(values | changes)


def test_names_in_anonymous_namespaces_lose_the_files_name() -> None:
    assert without_file_names(PLAIN) == without_file_names(OURS) == "_ZN_GLOBAL__N_6kernelEPKf"
    assert digests(listing(PLAIN)) == digests(listing(OURS))
    assert without_file_names("_Z5scalePfi") == "_Z5scalePfi"


def test_equal_instructions_are_equal_wherever_variables_lie() -> None:
    assert digests(listing()) == digests(listing(slot="0x10"))
    assert set(digests(listing())) == {"scale"}


def test_another_instruction_or_function_differs() -> None:
    assert differences(digests(listing()), digests(listing(operation="FMUL"))) == ("scale",)
    assert differences(digests(listing()), digests(listing() + listing("more"))) == ("more",)


def test_a_row_without_the_plain_arm_is_done_only_where_that_is_not_wanted() -> None:
    assert is_done([row()], "one", CANDIDATE, with_plain=False)
    assert not is_done([row()], "one", CANDIDATE, with_plain=True)
    assert is_done([row(plain=PlainBuild(seconds=48.0))], "one", CANDIDATE, with_plain=True)


def test_a_changed_candidate_is_measured_again() -> None:
    assert not is_done([row()], "one", CorpusCandidate("class ModelNew: pass\n", "causal_conv"), with_plain=False)
    assert not is_done([row()], "two", CANDIDATE, with_plain=False)


def test_a_torn_last_line_is_left_out_and_a_later_row_counts(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    assert read_lines(file) == ()
    append(file, Once(flags="", first_s=30.0, again_s=4.0, fallback_s=35.0))
    append(file, row())
    append(file, row(plain=PlainBuild(seconds=48.0)))
    with file.open("a", encoding="utf-8") as out:
        out.write('{"kind":"row","na')
    assert len(read_lines(file)) == 3
    assert [each.plain for each in read_rows(file)] == [PlainBuild(seconds=48.0)]


def test_the_table_counts_what_was_reached() -> None:
    slow = OwnBuild(whole_s=12.0, build_s=11.0, paths=("plain",), keys=("k",))
    text = table(
        [
            row("one", PlainBuild(seconds=48.0)),
            row("two", PlainBuild(seconds=24.0), cold=slow, code=DeviceCode(functions=1, differing=("scale",))),
            row("three", PlainBuild(seconds=9.0, error="no compiler"), code=None),
        ]
    )
    assert "| one | 48.0 | 3.0 | 0.25 | 16.0 | fast | identical |" in text
    assert "| two | 24.0 | 12.0 | 0.25 | 2.0 | plain | differs |" in text
    assert "| three | failed | 3.0 | 0.25 |  | fast |  |" in text
    assert "Paths: fast 2, plain 1." in text
    assert "Cold: median 3.0 s, 2 of 3 within 4 s." in text
    assert "Plain takes 9.0 times as long in the median, at least 2.0 times." in text
    assert "The device code of 1 of 2 is identical." in text


def test_flags_are_those_for_the_host_compiler() -> None:
    text = 'load_inline("a", extra_cuda_cflags=["-O3"], extra_cflags=["-O2"], functions=["f"])\n'
    assert CorpusCandidate(text, "causal_conv").flags == "extra_cflags=['-O2']"


def test_names_choose_from_the_corpus() -> None:
    assert len(chosen_candidates([])) >= 30
    chosen = chosen_candidates(["causal_wmma_tf32"])
    assert [(name, candidate.task) for name, candidate in chosen.items()] == [("causal_wmma_tf32", "causal_conv")]
    with pytest.raises(UsageError, match=r"no candidate is named nothing; there are .*causal_wmma_tf32"):
        chosen_candidates(["nothing"])
