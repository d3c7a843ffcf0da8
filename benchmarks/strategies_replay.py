"""An evaluator that answers from measurements of a whole family of kernels, so that thousands of runs take minutes."""

from collections.abc import Mapping

from agent.simulated.variant import Variant, variants_in
from tasks.spec import Precision
from tools.candidate import Candidate
from tools.results import (
    BenchmarkResult,
    BuildResult,
    Built,
    Check,
    DisassemblyResult,
    Evaluation,
    Fault,
    ProfileResult,
    SanitizeResult,
    Stage,
    Timed,
    Verified,
    VerifyResult,
)
from tools.verdict import Verdict


class ReplayedFamily:
    """An `Evaluator`: every kernel gets its one recorded measurement each time, so nothing varies but what is tried."""

    leased_s = 0.0

    def __init__(self, family: Mapping[Variant, Timed]) -> None:
        self._family = family

    def compile(self, candidate: Candidate) -> BuildResult:
        """Fails for a bracket that was left open."""
        if _is_unbuilt(candidate):
            return _fault("build", Verdict.BUILD_FAILED, candidate)
        return Built(candidate=candidate.id, extensions=(), note="recorded", sandbox="", seconds=0.0)

    def verify(self, candidate: Candidate) -> VerifyResult:
        """Fails for any fault."""
        if _is_unbuilt(candidate):
            return _fault("verify", Verdict.BUILD_FAILED, candidate)
        if _variant(candidate).fault:
            return _fault("verify", Verdict.INCORRECT, candidate)
        check = Check(
            trial="recorded",
            output="output",
            **dict.fromkeys(("rms_error", "channel_error", "peak_error"), 0.0),
            **dict.fromkeys(("rms_limit", "channel_limit", "peak_limit"), 1.0),
        )
        return Verified(candidate=candidate.id, precision=Precision.FP32, checks=(check,), sandbox="", seconds=0.0)

    def benchmark(self, candidate: Candidate) -> BenchmarkResult:
        """The recorded measurement of a right kernel."""
        fault = _variant(candidate).fault
        if fault:
            verdict = Verdict.BUILD_FAILED if _is_unbuilt(candidate) else Verdict.STALE_OUTPUT
            return _fault("benchmark", verdict, candidate)
        return self._family[_variant(candidate)].model_copy(update={"candidate": candidate.id})

    def evaluate(self, candidate: Candidate, *, strict: bool = False) -> Evaluation:
        """The simulated model does not submit."""
        raise NotImplementedError(strict, candidate.id)

    def profile(self, candidate: Candidate) -> ProfileResult:
        """The simulated model asks for none."""
        raise NotImplementedError(candidate.id)

    def sanitize(self, candidate: Candidate) -> SanitizeResult:
        """The simulated model does not ask for it."""
        raise NotImplementedError(candidate.id)

    def disassemble(self, candidate: Candidate, function: str | None = None) -> DisassemblyResult:
        """The simulated model does not ask for it."""
        raise NotImplementedError(candidate.id, function)


def _is_unbuilt(candidate: Candidate) -> bool:
    return _variant(candidate).fault == "bracket left open"


def _variant(candidate: Candidate) -> Variant:
    (variant,) = variants_in(candidate.text)
    return variant


def _fault(stage: Stage, verdict: Verdict, candidate: Candidate) -> Fault:
    return Fault(stage=stage, verdict=verdict, message="as recorded", candidate=candidate.id)
