"""What NVIDIA's compute-sanitizer says about a candidate: a part of an evaluation's result, and its verdict."""

from typing import Literal, get_args

from tasks.record import Record
from tools.verdict import Verdict

SanitizerTool = Literal["memcheck", "racecheck", "initcheck"]
SANITIZER_TOOLS: tuple[SanitizerTool, ...] = get_args(SanitizerTool)
"""In this order: what the others say of accesses outside of memory means little."""

_REMEDIES: dict[SanitizerTool, str] = {
    "memcheck": "Guard every access by the array's true size, also where the value read is not used.",
    "racecheck": "Put a barrier (__syncthreads, or __syncwarp within a warp) between the two accesses.",
    "initcheck": "Write the memory before it is read, also where the value has no effect.",
}


class SanitizerFinding(Record):
    """What one tool says about one place of one of the candidate's kernels."""

    severity: Literal["error", "warning"]
    kind: str
    """For example `Invalid __global__ read of size 4 bytes, out of bounds`."""
    kernel: str
    """With its namespaces, without its arguments."""
    location: str = ""
    """File and line where the build has them, and the offset of the instruction."""
    block: str = ""
    """The first block it was seen in, such as `(0,0,0)`; empty where the tool names none, as racecheck does."""
    thread: str = ""
    """The first thread it was seen in."""
    count: int = 1
    """How often, as far as the tool printed it: accesses for memcheck and initcheck, hazards for racecheck."""
    excerpt: str = ""
    """The first lines of the first report."""


class SanitizerRun(Record):
    """One tool on the candidate."""

    tool: SanitizerTool
    outcome: Literal["clean", "findings", "not_run"]
    """`clean`: the calls ended, their outputs were right, and no error is reported; warnings may be. `not_run`: no
    answer, whatever the reason."""
    reason: str = ""
    """Why there is no answer."""
    findings: tuple[SanitizerFinding, ...] = ()
    """The first few, errors before warnings."""
    seconds: float = 0.0

    @property
    def errors(self) -> tuple[SanitizerFinding, ...]:
        """The findings that count."""
        return tuple(finding for finding in self.findings if finding.severity == "error")


class Sanitized(Record):
    """All tools on a candidate, which in an evaluation was verified before.

    Outputs that came right do not excuse an error: they came right by what lies beside an array, by how threads
    happened to be scheduled, by what memory held before. An access outside of memory gets `crashed`, for that is how it
    ends wherever the next page is not mapped. A race and an uninitialised read get `incorrect`, for nothing defines the
    value that is read. Warnings of racecheck may be intended, says its manual: they are shown and change nothing. Nor
    does a tool without an answer: that is the machine's matter.
    """

    status: Literal["sanitized"] = "sanitized"
    candidate: str
    shapes: tuple[str, ...] = ()
    """The shapes that were run; empty where none was."""
    runs: tuple[SanitizerRun, ...]
    sandbox: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """`correct` unless a tool reports an error."""
        accuser = self._accuser
        if accuser is None:
            return Verdict.CORRECT
        return Verdict.CRASHED if accuser.tool == "memcheck" else Verdict.INCORRECT

    @property
    def message(self) -> str:
        """What happened, where, and what to do about it; empty where no tool reports an error."""
        accuser = self._accuser
        if accuser is None:
            return ""
        first, more = accuser.errors[0], len(accuser.errors) - 1
        where = f" at {first.location}" if first.location else ""
        who = f", first in thread {first.thread} of block {first.block}" if first.thread else ""
        times = "once" if first.count == 1 else f"{first.count} times"
        others = f", and errors at {more} more place{'s' if more > 1 else ''}" if more else ""
        return (
            f"{accuser.tool} of compute-sanitizer reports, on small shapes: {first.kind}, in kernel {first.kernel}"
            f"{where}{who}, {times}{others}. Right outputs were luck. {_REMEDIES[accuser.tool]}"
        )

    @property
    def _accuser(self) -> SanitizerRun | None:
        return next((run for run in self.runs if run.errors), None)


def not_run(candidate: str, reason: str) -> Sanitized:
    """The result where no tool can be run at all."""
    runs = tuple(SanitizerRun(tool=tool, outcome="not_run", reason=reason) for tool in SANITIZER_TOOLS)
    return Sanitized(candidate=candidate, runs=runs)
