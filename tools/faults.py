"""Results of evaluations that ended before their question was answered with yes, by whoever's fault."""

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tasks.errors import HarnessError, UnavailableError
from tools.candidate import Candidate
from tools.printable import printable
from tools.results import Fault, Stage
from tools.verdict import Verdict
from tools.workers import CandidateFault

Answer = TypeVar("Answer")


def fault_result(stage: Stage, candidate: Candidate, fault: CandidateFault, sandbox: str, started: float) -> Fault:
    """The candidate's fault; `sandbox` is the tier it ran in, `started` by `time.monotonic`."""
    return Fault(
        stage=stage,
        verdict=fault.verdict,
        message=fault.message,
        candidate=candidate.id,
        diagnostics=fault.diagnostics,
        excess=fault.excess,
        likely=fault.likely,
        sandbox=sandbox,
        seconds=time.monotonic() - started,
    )


def own_fault_result(stage: Stage, candidate: Candidate, error: Exception, started: float) -> Fault:
    """Whatever fails that is no candidate's fault ends this candidate's evaluation, never those of the next."""
    unavailable = isinstance(error, UnavailableError)
    message = str(error)
    if not isinstance(error, UnavailableError | HarnessError):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        message = f"the harness failed: {type(error).__name__}: {printable(message)} ({where}); please report this."
    return Fault(
        stage=stage,
        verdict=Verdict.UNAVAILABLE if unavailable else Verdict.HARNESS_ERROR,
        message=message,
        candidate=candidate.id,
        seconds=time.monotonic() - started,
    )


def answered(stage: Stage, candidate: Candidate, sandbox: str, ask: Callable[[], Answer]) -> Answer | Fault:
    """What `ask` answers, or the fault that it ends with; as of `fault_result`."""
    started = time.monotonic()
    try:
        return ask()
    except CandidateFault as fault:
        return fault_result(stage, candidate, fault, sandbox, started)
    except Exception as error:
        return own_fault_result(stage, candidate, error, started)
