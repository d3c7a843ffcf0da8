"""A candidate's fault, and the verdict of every way in which a worker can fail."""

import errno
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from tools.compilation import BuildError
from tools.folders import read_regular
from tools.printable import printable
from tools.replies import WorkerFault
from tools.results import Diagnostic
from tools.usage import Budget
from tools.verdict import Verdict

_PRINTED_TAIL = 1500
# Lines that faulthandler prints about the worker's own code; they mean nothing to a candidate's author.
_OUR_FRAMES = re.compile(r'\s*File "(?!candidate\.py)|Extension modules:|Current thread ')


class CandidateFault(Exception):
    """A candidate's fault on its way from the worker to the judge, who makes a `Fault` of it."""

    def __init__(
        self,
        verdict: Verdict,
        message: str,
        diagnostics: tuple[Diagnostic, ...] = (),
        excess: float | None = None,
        output: str = "",
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.diagnostics = diagnostics
        self.excess = excess
        self.output = output
        """Which output has a wrong value, where that is the fault."""
        self.likely = ""
        """As of `Fault`."""


def fault_told(fault: WorkerFault, build_faults: Sequence[BuildError], budget: Budget) -> CandidateFault:
    """The fault that a worker tells of; `build_faults` are those of the extensions that its candidate asked for."""
    where = f" (candidate.py: {'; '.join(fault.lines)})" if fault.lines else ""
    text = f"{fault.type}: {fault.message}{where}"
    if os.strerror(errno.ENOSPC) in fault.message:
        text += f"; a worker's files may take {budget.disk_bytes >> 20} MiB together"
    match fault.kind:
        case "build":
            for error in build_faults:
                if error.message.startswith(fault.message):
                    return CandidateFault(Verdict.BUILD_FAILED, error.message, error.diagnostics)
            return CandidateFault(Verdict.BUILD_FAILED, text)
        case "syntax":
            return CandidateFault(Verdict.BUILD_FAILED, text)
        case "contract":
            return CandidateFault(Verdict.CONTRACT_ERROR, fault.message)
        case "memory":
            return CandidateFault(Verdict.OUT_OF_MEMORY, text)
        case "exit":
            return CandidateFault(Verdict.NO_RESULT, f"the candidate ended its process with {text}")
        case _:
            return CandidateFault(Verdict.CRASHED, text)


def death(code: int | None, printed: str) -> CandidateFault:
    """The fault of a worker that ended without an answer; its exit code is negative for a signal, None if unknown."""
    if code is None or code >= 0:
        return CandidateFault(
            Verdict.NO_RESULT, f"the worker ended with exit code {code} and without an answer.{printed}"
        )
    name = signal.Signals(-code).name
    if -code == signal.SIGKILL:
        return CandidateFault(
            Verdict.OUT_OF_MEMORY, f"the worker was killed from outside ({name}), most likely for memory.{printed}"
        )
    return CandidateFault(Verdict.CRASHED, f"the worker was ended by {name}.{printed}")


def printed_end(scratch: Path) -> str:
    """The end of what the candidate and its runtime printed; it often names the cause of a crash."""
    try:
        raw = read_regular(scratch / "printed.txt", last=4 * _PRINTED_TAIL)
    except OSError:
        return ""
    lines = [line for line in printable(raw.decode("utf-8", "replace")).splitlines() if not _OUR_FRAMES.match(line)]
    text = "\n".join(lines).strip()[-_PRINTED_TAIL:]
    return f"\nIt had printed:\n{text}" if text else ""
