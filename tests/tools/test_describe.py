"""What a model hears of a result: the first errors whole, the rest counted, and never much."""

import pytest

from tasks.spec import Precision, Target
from tools.describe import describe
from tools.kernel_resources import KernelResources
from tools.results import (
    Baseline,
    Built,
    Check,
    Determinism,
    Diagnostic,
    Evaluation,
    Extension,
    Fault,
    Interval,
    Refused,
    Timed,
    Verified,
)
from tools.sanitizer_results import Sanitized, SanitizerFinding, SanitizerRun, not_run
from tools.units import format_ns
from tools.verdict import Verdict

ID = "0123456789abcdef" * 4


def diagnostic(line: int, severity: str = "error") -> Diagnostic:
    return Diagnostic.model_validate(
        {"severity": severity, "message": f"message {line}", "line": line, "excerpt": f"  x{line}\n  ^"}
    )


def kernel(number: int, spills: int = 0) -> KernelResources:
    return KernelResources(name=f"kernel_{number}", registers=32, shared_bytes=1024, spill_store_bytes=spills)


def built(*extensions: Extension) -> Built:
    return Built(candidate=ID, extensions=extensions, sandbox="process", seconds=4.25)


def extension(kernels: int = 1, warnings: int = 0, *, cached: bool = False) -> Extension:
    return Extension(
        label="conv",
        key="k",
        cached=cached,
        seconds=4.0,
        path_taken="fast",
        kernels=tuple(kernel(number) for number in range(kernels)),
        warnings=tuple(diagnostic(number, "warning") for number in range(warnings)),
    )


def timed(low: float, high: float, speedup: float) -> Timed:
    return Timed(
        candidate=ID,
        median_ns=2_000_000.0,
        baseline="eager",
        baseline_ns=2_000_000.0 * speedup,
        speedup=speedup,
        speedup_interval=Interval(low=low, high=high),
        baselines=(
            Baseline(name="eager", median_ns=3e6),
            Baseline(name="torch.compile", median_ns=None, note="failed: no compiler\nand much more"),
        ),
        floor_ns=500_000.0,
        prepare_ns=1_500,
        wall_median_ns=2.1e6,
        candidate_samples_ns=((2_000_000,),),
        baseline_samples_ns=((3_000_000,),),
        sandbox="process",
        seconds=3.0,
    )


def test_the_first_errors_whole_and_the_rest_counted() -> None:
    fault = Fault(
        stage="build",
        verdict=Verdict.BUILD_FAILED,
        message="the extension 'conv' does not compile: 5 errors.",
        candidate=ID,
        diagnostics=(*(diagnostic(line) for line in range(1, 6)), diagnostic(9, "warning")),
    )
    assert describe(fault).splitlines() == [
        "build_failed (build, candidate 0123456789ab): the extension 'conv' does not compile: 5 errors.",
        "candidate.py:1: error: message 1",
        "  x1",
        "  ^",
        "candidate.py:2: error: message 2",
        "  x2",
        "  ^",
        "candidate.py:3: error: message 3",
        "  x3",
        "  ^",
        "  and 2 more errors",
        "  and 1 more warning",
    ]


def test_long_lines_of_source_are_cut() -> None:
    long = diagnostic(1).model_copy(update={"excerpt": "y" * 5000})
    fault = Fault(stage="build", verdict=Verdict.BUILD_FAILED, message="", candidate=ID, diagnostics=(long,))
    assert max(map(len, describe(fault).splitlines())) == 160


def test_kernels_with_what_they_use() -> None:
    text = describe(built(extension(kernels=10, warnings=4)))
    assert "kernel_0: 32 registers, 1024 bytes shared" in text
    assert "kernel_8" not in text
    assert "and 2 more kernels" in text
    assert "and 1 more warning" in text
    assert "spills" not in text
    spilling = extension().model_copy(update={"kernels": (kernel(0, spills=96),)})
    assert "spills 96 bytes stored and 0 loaded" in describe(built(spilling))
    assert "(from the cache)" in describe(built(extension(cached=True)))


def test_a_candidate_without_an_extension_is_warned() -> None:
    assert "there is no kernel of your own in this candidate" in describe(built())


def test_the_check_closest_to_its_limit() -> None:
    def check(output: str, rms: float, peak: float) -> Check:
        limits = {"rms_limit": 1e-5, "channel_limit": 1e-5, "peak_limit": 1e-4}
        errors = {"rms_error": rms, "channel_error": rms, "peak_error": peak}
        return Check.model_validate({"trial": "N=1 L=1, usual", "output": output, **limits, **errors})

    checks = (check("output", 5e-6, 1e-5), check("state mean", 1e-6, 9e-5))
    result = Verified(candidate=ID, precision=Precision.TF32, checks=checks, sandbox="", seconds=1.0)
    assert "correct: 2 comparisons in class tf32" in describe(result)
    assert "state mean (N=1 L=1, usual)" in describe(result)


@pytest.mark.parametrize(
    ("identical", "text"),
    [
        (10, " Deterministic: 10 calls with the same inputs answered the same bits."),
        (
            3,
            " Not deterministic, which is allowed: of 10 calls with the same inputs (N=2 L=9, usual) 3 answered the "
            "bits of the first; the largest difference is 1.2e-07 of its channel's RMS.",
        ),
    ],
)
def test_whether_the_same_inputs_gave_the_same_bits(identical: int, text: str) -> None:
    check = Check(
        trial="", output="", rms_error=0, rms_limit=1, channel_error=0, channel_limit=1, peak_error=0, peak_limit=1
    )
    found = Determinism(trial="N=2 L=9, usual", calls=10, identical=identical, largest_difference=1.23e-7)
    result = Verified(candidate=ID, precision=Precision.TF32, checks=(check,), sandbox="", seconds=1.0)
    assert describe(result.model_copy(update={"determinism": found})) == describe(result) + text


@pytest.mark.parametrize(
    ("low", "high", "speedup", "claim"),
    [
        (1.4, 1.6, 1.5, "1.500x the fastest baseline [1.400, 1.600]: faster than the baseline"),
        (0.4, 0.6, 0.5, "0.500x the fastest baseline [0.400, 0.600]: slower than the baseline"),
        (0.9, 1.1, 1.02, "not distinguishable from the baseline"),
    ],
)
def test_a_speedup_is_claimed_only_where_its_interval_excludes_one(
    low: float, high: float, speedup: float, claim: str
) -> None:
    text = describe(timed(low, high, speedup))
    assert claim in text
    assert "baseline torch.compile: not available: failed: no compiler\n" in text
    assert "floor (roofline): 500 us; reached 25.0%" in text
    assert "prepare() took 1.5 us once, not counted" in text


RACE = SanitizerFinding(
    severity="error",
    kind="a race between accesses of type write and read",
    kernel="sum_kernel",
    location="offset 0xa60",
    count=28,
    excerpt="Error: Race reported between Write access at sum_kernel(float *)+0xa60\nand Read access",
)


def evaluation(*runs: SanitizerRun) -> Evaluation:
    sanitizer = Sanitized(candidate=ID, shapes=("N=1 L=1",), runs=runs, sandbox="process", seconds=9.0)
    return Evaluation(candidate=ID, task="task", target=Target.CUDA, build=built(), sanitizer=sanitizer)


def test_a_race_is_told_with_its_place_and_remedy_and_makes_the_verdict() -> None:
    found = evaluation(SanitizerRun(tool="racecheck", outcome="findings", findings=(RACE, RACE), seconds=8.0))
    assert found.verdict is Verdict.INCORRECT
    assert found.fault is not None and found.fault.stage == "sanitizer"
    text = describe(found)
    assert text.startswith("submitted: incorrect\n")
    assert "in kernel sum_kernel at offset 0xa60, 28 times, and errors at 1 more place." in text
    assert "__syncthreads" in text
    assert "compute-sanitizer racecheck: 2 errors (8.0 s)\n  Error: Race reported" in text


def test_a_tool_that_was_not_run_never_reads_as_clean() -> None:
    found = evaluation(
        SanitizerRun(tool="memcheck", outcome="clean", seconds=8.0),
        SanitizerRun(tool="initcheck", outcome="not_run", reason="not installed", seconds=0.0),
    )
    assert found.verdict is Verdict.CORRECT
    assert "compute-sanitizer memcheck: clean (8.0 s)" in describe(found)
    assert "compute-sanitizer initcheck: not run, so nothing is known: not installed" in describe(found)


def test_one_reason_against_all_tools_is_told_once() -> None:
    text = describe(evaluation(*not_run(ID, "the target is cpu.").runs))
    assert text.count("the target is cpu.") == 1
    assert (
        "compute-sanitizer (memcheck, racecheck, initcheck): not run, so nothing is known: the target is cpu." in text
    )


def test_a_refusal_is_its_message() -> None:
    assert describe(Refused(message="nothing has been compiled yet")) == "nothing has been compiled yet"


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(0.0, "0 ns"), (999.0, "999 ns"), (1234.0, "1.234 us"), (65_400.0, "65.4 us"), (2.5e6, "2.5 ms"), (3e9, "3 s")],
)
def test_times_in_the_unit_people_read_them_in(nanoseconds: float, text: str) -> None:
    assert format_ns(nanoseconds) == text
