"""Runs a candidate once under Nsight Compute (`ncu`), where it is installed and permitted, and reads its counters.

ncu must start what it examines, as compute-sanitizer does (`tools.sanitizer`). Its options and metrics are those of the
Nsight Compute CLI manual; clocks are left as they are. NOT covered: a candidate that notices ncu and does otherwise.
"""

import csv
import io
import re
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tasks.errors import HarnessError, UnavailableError
from tools.candidate import Candidate
from tools.library_compute import bare
from tools.profile_results import Counters
from tools.session import Session
from tools.standalone import Standalone
from tools.subject import SLACK_BYTES, Limits, Named, Subject
from tools.toolchain import find_ncu
from tools.worker.shared_memory import aligned
from tools.workers import CandidateFault

LIMIT_S = 120.0
"""For one call with all counters, Python's and PyTorch's start included."""
MOST_LAUNCHES = 16
STALLS_SHOWN = 3
_LOG_LIMIT_BYTES = 4 << 20
_TAIL = 300

_SHARES = {
    "sm_throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "achieved_occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1_hit_rate": "l1tex__t_sector_hit_rate.pct",
    "l2_hit_rate": "lts__t_sector_hit_rate.pct",
}
_BYTES = {"dram_read_bytes": "dram__bytes_read.sum", "dram_write_bytes": "dram__bytes_write.sum"}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = (
    *("long_scoreboard", "short_scoreboard", "barrier", "membar", "math_pipe_throttle", "mio_throttle"),
    *("lg_throttle", "tex_throttle", "wait", "not_selected", "dispatch_stall", "no_instruction", "drain"),
)
_DURATION = "gpu__time_duration.sum"
_NO_NCU = "Nsight Compute (ncu) is not installed: it is neither on PATH nor in the CUDA toolkit nor in /opt/nvidia."
_FORBIDDEN = (
    "this machine's driver does not permit hardware counters (ERR_NVGPUCTRPERM); its administrator can: "
    "NVreg_RestrictProfilingToAdminUsers=0 for the nvidia kernel module, or CAP_SYS_ADMIN for a container."
)


@dataclass(frozen=True)
class MeasuredCounters:
    """What ncu measured, by the bare names of kernels; or why it measured nothing."""

    missing: str = ""
    kernels: dict[str, Counters] = field(default_factory=dict)

    def of(self, name: str) -> Counters | None:
        """The counters of a kernel, whichever way its name is printed."""
        return self.kernels.get(bare(name))


def measure_counters(
    session: Session, candidate: Candidate, names: Iterable[str], inputs: Named, state: dict[str, torch.Tensor]
) -> MeasuredCounters:
    """The counters of the candidate's kernels in its second call; never raises for what ncu or the candidate does.

    Args:
        session: of the task.
        candidate: what is examined.
        names: the bare names of its kernels.
        inputs: of the call.
        state: parameters and buffers.
    """
    ncu = find_ncu()
    plain = sorted(name.rpartition("::")[2] for name in names)
    if ncu is None:
        return MeasuredCounters(_NO_NCU)
    if not plain:
        return MeasuredCounters("no kernel of the candidate's own is known by name.")
    session.progress("Nsight Compute: hardware counters")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelwright-ncu-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        log = folder / "report.csv"
        home = ncu.resolve().parent
        standalone = Standalone(
            command(ncu, plain, log), folder, gpu=session.device == "cuda", read=[home, home.parent], environment={}
        )
        watchdog = threading.Timer(LIMIT_S, standalone.kill)
        watchdog.start()
        try:
            problem = _call_under(standalone, session, candidate, inputs, state, started + LIMIT_S)
        finally:
            watchdog.cancel()
            watchdog.join()
            standalone.close()
        text = _text(log)
    if time.monotonic() - started >= LIMIT_S:
        problem = f"Nsight Compute was not finished within {LIMIT_S:.0f} s and was stopped."
    return read_counters(text, problem)


def command(ncu: Path, names: Iterable[str], log: Path) -> list[str]:
    """The command line that a worker's is appended to."""
    wanted = "|".join(re.escape(name) for name in names)
    metrics = [*_SHARES.values(), *_BYTES.values(), *map(_STALL.format, _STALLS), _DURATION]
    return [
        *(str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        *("--target-processes", "all", "--clock-control", "none", "--launch-count", str(MOST_LAUNCHES)),
        *("--kernel-name-base", "function", "--kernel-name", f"regex:^({wanted})$", "--metrics", ",".join(metrics)),
    ]


def _call_under(
    standalone: Standalone,
    session: Session,
    candidate: Candidate,
    inputs: Named,
    state: dict[str, torch.Tensor],
    deadline: float,
) -> str:
    """Make one call and let ncu end; returns what kept it from that."""
    sizes = session.task.facts.benchmark_sizes(session.target)
    try:
        worker = standalone.spawn(aligned(session.memory_bytes(sizes) + SLACK_BYTES), LIMIT_S)
    except HarnessError as error:
        return str(error)
    subject = Subject(worker, session.builder, candidate, session.device, Limits(load_s=LIMIT_S, call_s=LIMIT_S))
    try:
        session.ready(subject, state)
        expected = session.workload.output_bytes + session.state_bytes
        # The profiler that watches calls would ask the driver for what ncu holds.
        subject.call(inputs, session.updated_state(state), expected, watch=False)
    except CandidateFault as fault:
        return f"the candidate ends as {fault.verdict} under Nsight Compute: {fault.message}"
    except (UnavailableError, HarnessError) as error:
        return str(error)
    finally:
        standalone.finish(worker, deadline)
        subject.close()
    return ""


def _text(log: Path) -> str:
    try:
        with log.open("rb") as file:
            return file.read(_LOG_LIMIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def read_counters(text: str, problem: str = "") -> MeasuredCounters:
    """The counters in what ncu wrote, of each kernel's longest launch; `problem` is what kept it from its end."""
    if "ERR_NVGPUCTRPERM" in text:
        return MeasuredCounters(_FORBIDDEN)
    start = text.find('"ID"')
    try:
        rows = [] if start < 0 else list(csv.DictReader(io.StringIO(text[start:])))
    except csv.Error as error:
        return MeasuredCounters(f"the report of Nsight Compute cannot be read: {error}.")
    longest: dict[str, dict[str, str]] = {}
    # The first row holds the units.
    for row in rows[1:]:
        name = bare(row.get("Kernel Name") or "")
        if name and (_number(row.get(_DURATION)) or 0.0) >= (_number(longest.get(name, {}).get(_DURATION)) or 0.0):
            longest[name] = row
    if not longest:
        said = " ".join(line for line in text.splitlines() if line.startswith("==ERROR==")) or text.strip()
        return MeasuredCounters(f"Nsight Compute measured nothing: {problem or said[-_TAIL:] or 'it wrote nothing.'}")
    return MeasuredCounters(kernels={name: _counters(row) for name, row in longest.items()})


def _counters(row: dict[str, str]) -> Counters:
    stalls = {name: _number(row.get(_STALL.format(name))) for name in _STALLS}
    largest = sorted(((value, name) for name, value in stalls.items() if value), reverse=True)[:STALLS_SHOWN]
    percentages = {name: _number(row.get(metric)) for name, metric in _SHARES.items()}
    figures = {name: None if value is None else value / 100 for name, value in percentages.items()}
    figures |= {name: _number(row.get(metric)) for name, metric in _BYTES.items()}
    return Counters(stalls={name: value for value, name in largest}, **figures)


def _number(text: str | None) -> float | None:
    """A number as ncu prints it, with commas between thousands; None where it says `n/a` or nothing."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
