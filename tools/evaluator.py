"""What a toolbox needs of whoever answers about candidates: a judge of its own, or one it shares with others."""

from typing import Protocol

from tools.candidate import Candidate
from tools.results import (
    BenchmarkResult,
    BuildResult,
    DisassemblyResult,
    Evaluation,
    ProfileResult,
    SanitizeResult,
    VerifyResult,
)


class Evaluator(Protocol):
    """Answers the questions of the tools. None of them raises for a candidate's fault: that is a `Fault`."""

    @property
    def leased_s(self) -> float:
        """How long the device was held, all questions together."""
        ...

    def compile(self, candidate: Candidate) -> BuildResult:
        """Does it compile, import and construct?"""
        ...

    def verify(self, candidate: Candidate) -> VerifyResult:
        """Is it right?"""
        ...

    def benchmark(self, candidate: Candidate) -> BenchmarkResult:
        """How fast is it, beside the fastest baseline?"""
        ...

    def evaluate(self, candidate: Candidate, *, strict: bool = False) -> Evaluation:
        """Build, verify and benchmark, as far as it comes; where strict, what was verified is also sanitized."""
        ...

    def profile(self, candidate: Candidate) -> ProfileResult:
        """Where does its time go?"""
        ...

    def sanitize(self, candidate: Candidate) -> SanitizeResult:
        """What does compute-sanitizer say about it?"""
        ...

    def disassemble(self, candidate: Candidate, function: str | None = None) -> DisassemblyResult:
        """Which instructions is a kernel of it made of: the one whose name holds `function`, or the first?"""
        ...
