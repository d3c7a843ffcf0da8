"""What compute-sanitizer writes is read whole: nothing is missed, and PyTorch's own is not blamed on a candidate."""

import pytest
from sanitizer_logs import (
    BARRIERS_UNTRACKED,
    BROKEN_TOOL,
    CALLED_FUNCTION,
    CLEAN,
    EARLIER_SPELLING,
    MISALIGNED,
    NO_HAZARDS,
    OUT_OF_BOUNDS,
    PYTORCHS_OWN,
    RACE,
    RACE_WARNING,
    TOO_MANY,
)

from tools.sanitizer_report import base_name, parse_report
from tools.sanitizer_results import SanitizerFinding


@pytest.mark.parametrize("log", [CLEAN, NO_HAZARDS, CLEAN.replace("\n", "\r\n")])
def test_a_clean_log_is_complete_and_empty(log: str) -> None:
    report = parse_report(log, ["kernel(float*)"])
    assert report.complete
    assert report.findings == ()
    assert (report.trouble, report.unprinted) == ("", 0)


def test_threads_at_one_place_are_one_finding_with_a_count() -> None:
    (finding,) = parse_report(OUT_OF_BOUNDS, []).findings
    assert finding == SanitizerFinding(
        severity="error",
        kind="Invalid __global__ read of size 4 bytes, out of bounds",
        kernel="causal_conv_kernel",
        location="cuda.cu:17, offset 0x160",
        block="(3,0,0)",
        thread="(0,0,0)",
        count=2,
        excerpt=finding.excerpt,
    )
    assert finding.excerpt.splitlines()[0] == "Invalid __global__ read of size 4 bytes"
    assert "1 bytes after the nearest allocation" in finding.excerpt
    assert "Host Frame" not in finding.excerpt


@pytest.mark.parametrize(
    ("log", "kernel", "location", "kind"),
    [
        (
            EARLIER_SPELLING,
            "vector_add",
            "myapp.cu:41, offset 0x250",
            "Uninitialized __global__ memory read of size 4 bytes",
        ),
        (
            MISALIGNED,
            "unaligned_kernel",
            "memcheck_demo.cu:6, offset 0x160",
            "Invalid __global__ write of size 4 bytes, misaligned",
        ),
    ],
)
def test_both_spellings_of_a_place_are_read(log: str, kernel: str, location: str, kind: str) -> None:
    (finding,) = parse_report(log, []).findings
    assert (finding.kernel, finding.location, finding.kind) == (kernel, location, kind)


def test_a_race_names_its_accesses_and_counts_its_hazards() -> None:
    error, warning = parse_report(RACE, []).findings
    assert (error.severity, error.kernel, error.location, error.count) == ("error", "Kernel", "offset 0xa60", 32)
    assert error.kind == "a race between accesses of type write and read"
    assert (warning.severity, warning.kernel, warning.count) == ("warning", "RAW", 4)


def test_a_warning_does_not_pass_for_an_error() -> None:
    (finding,) = parse_report(RACE_WARNING, []).findings
    assert finding.severity == "warning"


def test_errors_of_pytorchs_kernels_and_of_host_calls_are_not_the_candidates() -> None:
    report = parse_report(PYTORCHS_OWN, ["causal_conv_kernel(float const*)"])
    assert report.findings == ()
    assert report.complete


def test_a_kernel_named_like_pytorchs_is_still_the_candidates() -> None:
    built = ["void at::native::vectorized_elementwise_kernel<4, Functor>(int, float*)"]
    (finding,) = parse_report(PYTORCHS_OWN, built).findings
    assert finding.kernel == "at::native::vectorized_elementwise_kernel"


def test_a_library_function_called_by_the_candidates_kernel_is_the_candidates() -> None:
    assert parse_report(CALLED_FUNCTION, []).findings == ()
    (finding,) = parse_report(CALLED_FUNCTION, ["causal_conv_kernel(float const*, float*)"]).findings
    assert finding.kernel == "causal_conv_kernel"
    assert finding.kind == "Invalid __shared__ write of size 4 bytes, out of bounds"


def test_errors_that_were_not_printed_are_counted() -> None:
    assert parse_report(TOO_MANY, []).unprinted == 157


@pytest.mark.parametrize(
    ("log", "trouble"), [(BROKEN_TOOL, "Internal Sanitizer Error"), (BARRIERS_UNTRACKED, "Warning: Detected overflow")]
)
def test_what_a_tool_says_against_itself_is_heard(log: str, trouble: str) -> None:
    assert parse_report(log, []).trouble.startswith(trouble)


@pytest.mark.parametrize("log", ["", "========= COMPUTE-SANITIZER\n", "ERROR SUMMARY: 0 errors\n", OUT_OF_BOUNDS[:600]])
def test_a_log_without_the_tools_own_summary_is_not_complete(log: str) -> None:
    assert not parse_report(log, []).complete


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("causal_conv_kernel(float const*, float*)", "causal_conv_kernel"),
        ("void ns::kernel<(int)256, float>(const int *)", "ns::kernel"),
        ("(anonymous namespace)::kernel(float *)", "(anonymous namespace)::kernel"),
        ("void (anonymous namespace)::kernel<(bool)0>(float *)", "(anonymous namespace)::kernel"),
        ("read_x", "read_x"),
    ],
)
def test_names_of_ptxas_and_of_the_sanitizer_meet(function: str, name: str) -> None:
    assert base_name(function) == name
