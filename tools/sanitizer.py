"""Calls a candidate on small shapes under NVIDIA's compute-sanitizer, tool by tool: the last word on a verified one.

The sanitizer must start what it examines, so a worker of its own is started under it (`tools.standalone`); the judge,
the protocol, the inputs, the poisoned memory and the comparison are those of verify. Flags as in NVIDIA's user manual
of compute-sanitizer, "Command Line Options".

NOT covered: accesses that stay within an array, races in global memory, what only longer shapes do, and a candidate
that does otherwise where it notices the sanitizer, or tampers with the part of it that is loaded into its process.

Only errors in a candidate's kernels count against it. That its outputs are wrong or that it fails under the sanitizer
alone does not: instrumented kernels take more registers and time, and may not launch at all. It keeps a tool from
calling it clean, though.
"""

import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from tasks.errors import HarnessError, UnavailableError
from tasks.spec import Target
from tools.candidate import Candidate
from tools.comparison import LimitsOf, compare, typical_rms
from tools.draws import Trial, trials
from tools.oracle import Answer
from tools.sanitizer_report import FINDINGS_KEPT, Report, parse_report
from tools.sanitizer_results import SANITIZER_TOOLS, Sanitized, SanitizerRun, SanitizerTool, not_run
from tools.session import Session
from tools.standalone import Standalone
from tools.subject import SLACK_BYTES, Limits, Named, Returned, Subject
from tools.toolchain import find_sanitizer
from tools.verdict import Verdict
from tools.verification import call
from tools.verification_plan import asked
from tools.worker.sandbox import tier
from tools.worker.shared_memory import aligned
from tools.workers import CandidateFault

TOOL_LIMIT_S = 240.0
"""For one tool with all shapes. Python and PyTorch take most of it to start; builds come from the cache."""
_TRIALS = 3
"""The first of verify's: one element, shorter than the receptive field in a batch, and an odd length in a batch."""
_PRINT_LIMIT = 1000
_PADDING_BYTES = 512
"""cudaMalloc places arrays 256 bytes apart: without padding the element after an array is the next array's first."""
_LOG_LIMIT_BYTES = 16 << 20
# Each tensor is then an allocation of its own with its true size. PyTorch's allocator hands out parts of larger ones,
# and what it hands out again counts as written.
_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


@dataclass(frozen=True)
class _Plan:
    """What is called under every tool."""

    calls: list[tuple[Trial, Named, Answer]]
    state: dict[str, torch.Tensor]
    limits_of: LimitsOf
    memory_bytes: int


def last_word(session: Session, candidate: Candidate) -> Sanitized:
    """What compute-sanitizer says about a candidate; where it cannot be run, the result says so."""
    if session.target is not Target.CUDA:
        return not_run(candidate.id, f"it examines CUDA kernels, and the target is {session.target}.")
    sanitizer = find_sanitizer()
    if sanitizer is None:
        return not_run(
            candidate.id,
            "compute-sanitizer is not installed: it is neither on PATH nor in the CUDA toolkit. A full installation of "
            "the toolkit has it; else pip install 'nvidia-cuda-sanitizer-api>=13.5' (earlier ones lack its launcher).",
        )
    try:
        with session.device_lease():
            return sanitize(session, candidate, sanitizer)
    except (UnavailableError, HarnessError) as error:
        return not_run(candidate.id, str(error))


def sanitize(session: Session, candidate: Candidate, sanitizer: Path) -> Sanitized:
    """What every tool of the compute-sanitizer at a path says about a candidate.

    Raises:
        UnavailableError, HarnessError: the calls to make cannot be planned.
    """
    started = time.monotonic()
    plan = _plan(session)
    if plan is None:
        return not_run(candidate.id, "the task has no shape that is smaller than the benchmark shape.")
    runs = []
    for tool in SANITIZER_TOOLS:
        session.progress(f"compute-sanitizer: {tool}")
        runs.append(_run(session, candidate, sanitizer, tool, plan))
    return Sanitized(
        candidate=candidate.id,
        shapes=tuple(trial.label for trial, _, _ in plan.calls),
        runs=tuple(runs),
        sandbox=tier(),
        seconds=time.monotonic() - started,
    )


def _plan(session: Session) -> _Plan | None:
    """Inputs, parameters and right answers, drawn once for all tools; None where only the benchmark shape is left."""
    benchmark = session.task.facts.benchmark_sizes(session.target)
    drawn = trials(session.task.facts, session.target, session.draws)[:_TRIALS]
    chosen = [trial for trial in drawn if trial.sizes != benchmark]
    if not chosen:
        return None
    state = session.draws.state(session.oracle.template)
    calls = [asked(session, trial, state) for trial in chosen]
    limits_of = LimitsOf(session.precision, typical_rms([answer for _, _, answer in calls]))
    return _Plan(calls, state, limits_of, max(session.memory_bytes(trial.sizes) for trial in chosen))


def _run(session: Session, candidate: Candidate, sanitizer: Path, tool: SanitizerTool, plan: _Plan) -> SanitizerRun:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelwright-sanitizer-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Not where the worker may write: it would write its own report.
        log = folder / "report.txt"
        standalone = Standalone(
            _command(sanitizer, tool, log),
            folder,
            gpu=session.device == "cuda",
            read=_folders(sanitizer),
            environment=_ENVIRONMENT,
        )
        watchdog = threading.Timer(TOOL_LIMIT_S, standalone.kill)
        watchdog.start()
        try:
            problem, kernels = _call_under(standalone, session, candidate, plan, started + TOOL_LIMIT_S)
        finally:
            watchdog.cancel()
            watchdog.join()
            standalone.close()
        report = parse_report(_text(log), kernels)
    seconds = time.monotonic() - started
    if seconds >= TOOL_LIMIT_S:
        problem = f"not finished within {TOOL_LIMIT_S:.0f} s."
    return judged(tool, report, problem, seconds)


def _folders(sanitizer: Path) -> list[Path]:
    """Where the sanitizer has what it loads into the worker: beside itself, or beside the bin it is called from."""
    beside = sanitizer.resolve().parent
    return [beside, beside.parent / "compute-sanitizer"]


def _command(sanitizer: Path, tool: SanitizerTool, log: Path) -> list[str]:
    command = [str(sanitizer), "--tool", tool, "--log-file", str(log), "--print-limit", str(_PRINT_LIMIT)]
    # By itself it gives its target a minute to get in touch, which is short for PyTorch on a busy machine.
    command += ["--target-processes", "all", "--launch-timeout", "120", "--show-backtrace", "device"]
    if tool == "memcheck":
        # PyTorch asks the driver for things that it may refuse, and such refusals are no errors of memory.
        command += ["--padding", str(_PADDING_BYTES), "--report-api-errors", "no"]
    return command


def _call_under(
    standalone: Standalone, session: Session, candidate: Candidate, plan: _Plan, deadline: float
) -> tuple[str, list[str]]:
    """Make all calls and let the program end; returns what kept it from that, and the candidate's kernels by name."""
    try:
        worker = standalone.spawn(aligned(plan.memory_bytes + SLACK_BYTES), TOOL_LIMIT_S)
    except HarnessError as error:
        return str(error), []
    limits = Limits(load_s=TOOL_LIMIT_S, call_s=TOOL_LIMIT_S)
    subject = Subject(worker, session.builder, candidate, session.device, limits)
    problem = ""
    try:
        session.ready(subject, plan.state)
        for trial, inputs, answer in plan.calls:
            state = session.updated_state(plan.state)
            # The profiler that watches calls would ask the driver for what the sanitizer holds.
            returned = call(subject, inputs, state, answer, trial.label, watch=False)
            problem = problem or _wrong(returned, answer, plan.limits_of, trial.label)
    except CandidateFault as fault:
        problem = problem or _ending(fault)
    except (UnavailableError, HarnessError) as error:
        problem = str(error)
    finally:
        standalone.finish(worker, deadline)
        subject.close()
    return problem, [kernel.name for extension in worker.extensions for kernel in extension.kernels]


def _wrong(returned: Returned, answer: Answer, limits_of: LimitsOf, where: str) -> str:
    """What is wrong with the outputs of a call, which keeps no other call from being made."""
    try:
        compare(returned, answer, limits_of, where, Verdict.INCORRECT)
    except CandidateFault as fault:
        return _ending(fault)
    return ""


def _ending(fault: CandidateFault) -> str:
    return f"the candidate ends as {fault.verdict} here: {fault.message}"


def _text(log: Path) -> str:
    try:
        with log.open("rb") as file:
            return file.read(_LOG_LIMIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def judged(tool: SanitizerTool, report: Report, problem: str, seconds: float) -> SanitizerRun:
    """What a run comes to, by the tool's report and by the problem that kept the calls from their end, if any.

    Errors count even where the run did not come to its end, unless the tool doubts itself.
    """
    if report.trouble:
        reason = "; ".join(filter(None, (report.trouble, problem)))
        return SanitizerRun(tool=tool, outcome="not_run", reason=reason, seconds=seconds)
    findings = report.findings[:FINDINGS_KEPT]
    if any(finding.severity == "error" for finding in findings):
        return SanitizerRun(tool=tool, outcome="findings", findings=findings, seconds=seconds)
    reason = problem
    if not reason and not report.complete:
        reason = "it wrote no summary."
    elif not reason and report.unprinted:
        reason = f"it left {report.unprinted} errors out of its report, and those in it are not the candidate's."
    outcome: Literal["clean", "not_run"] = "not_run" if reason else "clean"
    return SanitizerRun(tool=tool, outcome=outcome, reason=reason, findings=findings, seconds=seconds)
