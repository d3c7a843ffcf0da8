"""A line of `score` says the same as the evaluation it came from, and the tables say the same as the lines."""

import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from evals.score_line import ScoreLine, score_line
from evals.score_table import print_scores
from tasks.spec import Precision, Target
from tools.results import Baseline, Built, Check, Evaluation, Fault, Interval, Timed, Verified
from tools.sanitizer_results import Sanitized, SanitizerFinding, SanitizerRun
from tools.verdict import Verdict

ID = "c0ffee" * 10 + "c0ff"
BUILT = Built(candidate=ID, extensions=(), sandbox="landlock", seconds=5.0)
CHECK = Check(
    trial="N=1 L=1",
    output="output",
    rms_error=1e-7,
    rms_limit=1e-5,
    channel_error=1e-7,
    channel_limit=1e-5,
    peak_error=1e-6,
    peak_limit=1e-4,
)
VERIFIED = Verified(candidate=ID, precision=Precision.FP32, checks=(CHECK,), sandbox="landlock", seconds=2.0)
TIMED = Timed(
    candidate=ID,
    median_ns=4e6,
    baseline="torch.compile",
    baseline_ns=5e6,
    speedup=1.25,
    speedup_interval=Interval(low=1.2, high=1.3),
    baselines=(
        Baseline(name="eager", median_ns=6e6),
        Baseline(name="cudnn-autotuned", median_ns=None, note="no cuDNN here"),
        Baseline(name="torch.compile", median_ns=5e6),
    ),
    floor_ns=1e6,
    prepare_ns=0,
    wall_median_ns=4.1e6,
    candidate_samples_ns=((4_000_000,),),
    baseline_samples_ns=((5_000_000,),),
    sandbox="landlock",
    seconds=3.0,
)
FAULT = Fault(stage="verify", verdict=Verdict.INCORRECT, message="zeros in [channel 3]", candidate=ID, seconds=1.0)


def line(evaluation: Evaluation, name: str) -> ScoreLine:
    return score_line(evaluation, Path("kernels") / name, Precision.FP32)


def correct() -> ScoreLine:
    evaluation = Evaluation(
        candidate=ID, task="causal_conv", target=Target.CPU, build=BUILT, verify=VERIFIED, benchmark=TIMED
    )
    return line(evaluation, "good.py")


def incorrect() -> ScoreLine:
    evaluation = Evaluation(candidate=ID, task="causal_conv", target=Target.CPU, build=BUILT, verify=FAULT)
    return line(evaluation, "wrong.py")


def unavailable() -> ScoreLine:
    fault = Fault(stage="build", verdict=Verdict.UNAVAILABLE, message="no GPU", candidate=ID)
    return line(Evaluation(candidate=ID, task="causal_conv", target=Target.CUDA, build=fault), "elsewhere.py")


def test_a_correct_candidate() -> None:
    data = json.loads(correct().model_dump_json())
    assert {key: data[key] for key in ("candidate", "file", "task", "target", "verdict", "message")} == {
        "candidate": ID,
        "file": "kernels/good.py",
        "task": "causal_conv",
        "target": "cpu",
        "verdict": "correct",
        "message": "correct, 1.25x the fastest baseline",
    }
    assert (data["speedup"], data["speedup_interval"]) == (1.25, {"low": 1.2, "high": 1.3})
    assert (data["baseline"], data["median_ns"], data["baseline_ns"], data["floor_ns"]) == (
        "torch.compile",
        4e6,
        5e6,
        1e6,
    )
    assert data["sandbox"] == "landlock"
    assert data["seconds"] == {"build": 5.0, "verify": 2.0, "sanitizer": None, "benchmark": 3.0}


def test_a_fault_has_no_figures() -> None:
    wrong = incorrect()
    assert (wrong.verdict, wrong.message) == (Verdict.INCORRECT, "zeros in [channel 3]")
    assert (wrong.speedup, wrong.median_ns, wrong.baseline, wrong.floor_ns) == (None, None, None, None)
    assert (wrong.seconds.verify, wrong.seconds.benchmark) == (1.0, None)
    assert wrong.sandbox == "landlock", "the build ran in it"


def strict() -> ScoreLine:
    runs = (
        SanitizerRun(
            tool="memcheck",
            outcome="findings",
            findings=(SanitizerFinding(severity="error", kind="Invalid read", kernel="conv"),),
            seconds=4.0,
        ),
        SanitizerRun(tool="racecheck", outcome="not_run", reason="not finished within 240 s."),
    )
    sanitized = Sanitized(candidate=ID, runs=runs, seconds=7.0)
    evaluation = Evaluation(
        candidate=ID, task="causal_conv", target=Target.CUDA, build=BUILT, verify=VERIFIED, sanitizer=sanitized
    )
    return line(evaluation, "out_of_bounds.py")


def test_what_the_sanitizer_found_stands_in_the_line_and_below_the_table() -> None:
    assert strict().verdict is Verdict.CRASHED
    assert [run.outcome for run in strict().sanitizer] == ["findings", "not_run"]
    assert strict().seconds.sanitizer == 7.0
    out = StringIO()
    print_scores(Console(file=out, width=200), [strict()])
    assert "kernels/out_of_bounds.py: compute-sanitizer memcheck: 1 error (4.0 s)" in out.getvalue()
    assert "compute-sanitizer racecheck: not run, so nothing is known: not finished within 240 s." in out.getvalue()


def test_a_line_survives_json() -> None:
    for each in (correct(), incorrect(), unavailable(), strict()):
        assert ScoreLine.model_validate_json(each.model_dump_json()) == each


def test_the_headline_can_be_had_again_from_a_line() -> None:
    """R32."""
    kept = ScoreLine.model_validate_json(correct().model_dump_json())
    (ours,), (theirs,) = kept.candidate_samples_ns[0], kept.baseline_samples_ns[0]
    assert (ours, theirs) == (kept.median_ns, kept.baseline_ns)
    assert theirs / ours == kept.speedup == 1.25
    assert incorrect().candidate_samples_ns == ()


def test_the_table_says_what_its_figures_are() -> None:
    """R4 and R32. The interval is one of 99 %, and was once said to be one of 95 %."""
    out = StringIO()
    print_scores(Console(file=out, width=200), [correct()])
    assert "speedup [99 %]" in out.getvalue()
    assert "class fp32 on cpu; time: the median of single calls, by the slower of two clocks" in out.getvalue()


def test_the_tables_give_both_denominators() -> None:
    out = StringIO()
    print_scores(Console(file=out, width=200), [correct(), incorrect(), unavailable()])
    text = out.getvalue()
    rows = {row[0]: row[1:] for row in ([c.strip() for c in t.strip("│ ").split("│")] for t in text.splitlines())}
    assert rows["fast_0"] == ["0.333 (1/3)", "0.500 (1/2)"]
    assert rows["fast_1.5"] == ["0.000 (0/3)", "0.000 (0/2)"]
    assert rows["pass@1, if drawn alike"] == ["0.333", "0.500"]
    assert rows["geometric mean over 1 correct"][0] == "1.25x"
    assert rows["unavailable"] == ["1", "-"]
    assert rows["good.py"][1:5] == ["4 ms", "torch.compile 5 ms", "1.25x [1.2, 1.3]", "eager 6 ms"]
    assert rows["good.py"][5] == "25%"
    assert "kernels/wrong.py: incorrect: zeros in [channel 3]" in text
