"""Verdicts: the one-word answers of an evaluation, and whose fault each is."""

from enum import StrEnum
from typing import Literal


class Verdict(StrEnum):
    """The one-word answer of an evaluation."""

    CORRECT = "correct"
    """The candidate built, and every output was right wherever it was checked."""
    BUILD_FAILED = "build_failed"
    """The candidate's text or one of its extensions does not compile or import."""
    CONTRACT_ERROR = "contract_error"
    """`ModelNew` is missing, or its parameters, buffers or outputs do not have the agreed form."""
    INCORRECT = "incorrect"
    """An output differs from the float64 oracle by more than the precision class allows; or compute-sanitizer found a
    race or a read of memory that nothing wrote."""
    INPUT_MUTATED = "input_mutated"
    """A call changed one of its inputs or parameters."""
    LIBRARY_COMPUTE = "library_compute"
    """Arithmetic in `forward` was done by PyTorch or another library."""
    STALE_OUTPUT = "stale_output"
    """The output of a timed call is wrong although the untimed checks passed."""
    IMPLAUSIBLE_TIME = "implausible_time"
    """A time is below what is physically possible, or the two clocks disagree."""
    CRASHED = "crashed"
    """The candidate raised an exception, a CUDA error or a signal; or compute-sanitizer saw it access memory outside of
    its arrays."""
    TIMEOUT = "timeout"
    """The candidate did not answer in time and was killed."""
    OUT_OF_MEMORY = "out_of_memory"
    """Host or device memory ran out."""
    NO_RESULT = "no_result"
    """The worker process ended without answering."""
    UNAVAILABLE = "unavailable"
    """This machine cannot answer, for example because it has no GPU."""
    HARNESS_ERROR = "harness_error"
    """A fault of Kernelwright; never counted against a candidate."""


Culprit = Literal["nobody", "candidate", "machine", "harness"]


def culprit(verdict: Verdict) -> Culprit:
    """Whose fault a verdict is; scores keep the candidate's faults apart from the machine's and ours."""
    if verdict is Verdict.CORRECT:
        return "nobody"
    if verdict is Verdict.UNAVAILABLE:
        return "machine"
    if verdict is Verdict.HARNESS_ERROR:
        return "harness"
    return "candidate"
