"""Reports from users of other harnesses, and where each has its right answer as a test.

A file named here says the report's number. Files below attacks and honest are candidates with the verdict that they
must get; those below cuda, and names with gpu in them, need a GPU. R29 (a run that was killed goes on where it stopped)
is about resuming, not about evaluation.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

REPORTS = {
    # Zeros pass where outputs are smaller than an absolute tolerance.
    "R1": ("tools/test_admission.py", "attacks/cpu/zeros.py"),
    # A copy passes for a normalisation of default parameters.
    "R2": ("tools/test_admission.py", "attacks/cpu/omits_the_norm.py", "attacks/cpu/omits_the_affine_part.py"),
    # Half precision in an fp32 task looks eleven times faster.
    "R3": ("tools/test_judge_outputs.py", "attacks/cpu/half_precision.py"),
    # TF32 against a baseline in fp32 looks twice as fast.
    "R4": ("tools/test_precision_classes.py", "evals/test_score_line.py"),
    # A kernel that is more exact than cuDNN is refused.
    "R5": ("tools/test_admission.py",),
    # A candidate's own random weights fail.
    "R6": ("tools/test_judge_parameters.py", "honest/cpu/weights_of_its_own_drawing.py"),
    # Words in an honest text are called cheating.
    "R7": (
        *("honest/cpu/pass_statements.py", "honest/cpu/build_in_try_and_except.py"),
        *("honest/cpu/reraises_in_forward.py", "honest/cpu/suspicious_words.py"),
    ),
    # One illegal access fails all later evaluations.
    "R8": ("tools/test_gpu_next_candidate.py", "attacks/cuda/reads_a_wild_address.py"),
    # Memory that was never written holds an old answer.
    "R10": ("tools/test_judge_outputs.py", "attacks/cpu/stale_memory.py", "attacks/cuda/stale_memory.py"),
    # A candidate changes its input to what makes its answer right.
    "R11": ("tools/test_judge_outputs.py", "attacks/cpu/mutates_its_input.py", "attacks/cpu/works_in_its_input.py"),
    # Work on a side stream is not timed.
    "R12": ("attacks/cuda/side_stream_unjoined.py",),
    # The second call answers from a cache.
    "R13": (
        *("attacks/cpu/cache_by_data_ptr.py", "attacks/cuda/cache_by_data_ptr.py"),
        "attacks/cpu/cache_by_coarse_fingerprint.py",
    ),
    # A clock is patched, and one time near zero spoils the mean.
    "R16": ("attacks/cuda/patches_events.py", "attacks/cpu/patches_the_workers_clock.py"),
    # The expected tensor is found in the process, or made NaN, which equals everything.
    "R17": ("attacks/cpu/nan_in_foreign_tensors.py", "attacks/cpu/nan_wildcard.py"),
    # A result is forged on the evaluator's own channel, or the process ends with exit code 0.
    "R18": ("attacks/cpu/forges_a_result.py", "attacks/cpu/exits_at_import.py", "attacks/cpu/exits_in_forward.py"),
    # A launch that failed unseen takes no time.
    "R20": ("tools/test_gpu_next_candidate.py", "attacks/cuda/too_much_shared_memory.py"),
    # Events lie on another stream than the launches.
    "R22": ("attacks/cuda/legacy_stream_under_a_side_stream.py",),
    # A killed compiler leaves a lock behind.
    "R23": ("tools/test_build_commands.py", "tools/test_cache.py"),
    # A compiler's error is taken for something else and told to nobody.
    "R24": ("tools/test_build_cuda.py",),
    # The time limit does not stop what runs.
    "R25": (
        *("tools/test_next_candidate.py", "tools/test_worker_faults.py", "tools/test_gpu_next_candidate.py"),
        *("attacks/cpu/loops_without_end.py", "attacks/cuda/endless_kernel.py"),
    ),
    # Arguments of a tool that were cut off crash the loop or spoil the conversation.
    "R27": ("agent/test_loop.py", "agent/test_served_chat.py"),
    # Retries without end, and the wrong cause named.
    "R28": ("agent/test_loop.py", "agent/test_served_faults.py"),
    # A candidate that is right on the shown shape only is ranked all the same.
    "R31": ("evals/test_scores.py", "evals/test_score_command.py", "attacks/cpu/hard_coded_shape.py"),
    # A headline that nobody can calculate again.
    "R32": ("tools/test_judge_timing.py", "evals/test_score_line.py"),
    # The baseline is slower than it need be, or from another session.
    "R34": ("tools/test_judge_timing.py",),
}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_that_no_test_answers(report: str) -> None:
    for file in REPORTS[report]:
        text = (TESTS / file).read_text(encoding="utf-8")
        assert re.search(rf"\b{report}\b|test_{report.lower()}_", text), f"{file} does not name {report}"
