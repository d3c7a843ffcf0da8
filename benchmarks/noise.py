"""How far a measurement may be trusted: the same kernel against itself, against a slightly slower one, and by ncu.

    python benchmarks/noise.py itself TASK TARGET FILE [REPEATS]       ratios must be 1.00, intervals must hold it
    python benchmarks/noise.py slower TASK FILE [REPEATS]              the same with work added on purpose (CUDA only)
    python benchmarks/noise.py ncu TASK FILE ...                       beside Nsight Compute's kernel times (CUDA only)

Each evaluation has new workers. `slower` adds a kernel that spins for a given number of clock cycles to the candidate,
and compares two such candidates whose cycles differ by a known share of the whole time. `ncu` needs a candidate whose
call is one kernel, because Nsight Compute empties the caches before every kernel.
"""

import csv
import io
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.draws import USUAL, Trial
from tools.judge import Judge
from tools.library_compute import bare, own_names
from tools.results import Built, Fault, Timed
from tools.session import Session
from tools.standalone import Standalone
from tools.subject import Limits, Subject

SHARES = (0.0025, 0.005, 0.01, 0.02, 0.05)
"""By how much of the whole time the slower candidate is slower."""
SPIN_CYCLES = 40_000
"""Some 20 us at 1980 MHz."""
NCU_CALLS = 9
_NCU_LIMIT_S = 180.0
_SPIN = """
_spinning = load_inline(
    name="spinning",
    cpp_sources="void spin(long cycles);",
    cuda_sources='''
__global__ void spin_kernel(long cycles) {
    const long start = clock64();
    while (clock64() - start < cycles) {}
}
void spin(long cycles) { spin_kernel<<<1, 1>>>(cycles); }
''',
    functions=["spin"],
)
_unspun = ModelNew.forward


def _spun(self, *inputs):
    out = _unspun(self, *inputs)
    _spinning.spin(CYCLES)
    return out


ModelNew.forward = _spun
"""


@dataclass
class Tally:
    """Ratios of several evaluations, and how many of their intervals do not hold 1."""

    ratios: list[float]
    claims: int = 0

    def add(self, result: Timed) -> None:
        """Count one evaluation, and print it."""
        interval = result.speedup_interval
        self.ratios.append(result.speedup)
        self.claims += not interval.holds(1.0)
        print(
            f"{len(self.ratios):3}  ratio {result.speedup:.4f}  [{interval.low:.4f}, {interval.high:.4f}]  "
            f"{result.median_ns / 1e3:.2f} us a call  {result.disturbance}",
            flush=True,
        )

    def deviations(self) -> list[float]:
        """How far each ratio is from 1, sorted."""
        return sorted(abs(ratio - 1.0) for ratio in self.ratios)


def _timed(judge: Judge, candidate: Candidate, other: Candidate) -> Timed:
    result = judge.benchmark(candidate, against=other)
    if isinstance(result, Fault):
        sys.exit(f"{result.verdict}: {result.message}")
    return result


def itself(task: str, target: str, file: str, repeats: int) -> None:
    """Compare a candidate with itself several times."""
    candidate = Candidate(Path(file).read_text(encoding="utf-8"))
    tally = Tally([])
    with Judge(find_task(task), Target(target), allow_library=True) as judge:
        for _ in range(repeats):
            tally.add(_timed(judge, candidate, candidate))
    deviations = tally.deviations()
    print(f"median |ratio - 1| {deviations[len(deviations) // 2]:.3%}, largest {deviations[-1]:.3%}")
    print(f"{tally.claims} of {repeats} intervals do not hold 1.00")


def slower(task: str, file: str, repeats: int) -> None:
    """Compare a candidate with ones that are slower by known shares."""
    text = Path(file).read_text(encoding="utf-8")
    with Judge(find_task(task), Target.CUDA, allow_library=True) as judge:
        plain = Candidate(text + _SPIN.replace("CYCLES", str(SPIN_CYCLES)))
        whole_ns = _timed(judge, plain, plain).median_ns
        spun_ns = whole_ns - _timed(judge, Candidate(text), Candidate(text)).median_ns
        for share in SHARES:
            added = round(SPIN_CYCLES * share * whole_ns / spun_ns)
            other = Candidate(text + _SPIN.replace("CYCLES", str(SPIN_CYCLES + added)))
            tally = Tally([])
            print(f"slower by {share:.2%} of {whole_ns / 1e3:.1f} us:")
            for _ in range(repeats):
                tally.add(_timed(judge, plain, other))
            seen = sum(ratio > 1.0 for ratio in tally.ratios)
            print(f"claimed {tally.claims} of {repeats} times; the ratio was above 1 in {seen}")


def ncu(task: str, files: list[str]) -> None:
    """Compare the judge's times with Nsight Compute's for the same kernels on the same shape."""
    program = shutil.which("ncu")
    if program is None:
        sys.exit("ncu is not on PATH: install Nsight Compute, or add the CUDA toolkit's bin folder to PATH.")
    for file in files:
        candidate = Candidate(Path(file).read_text(encoding="utf-8"))
        with Judge(find_task(task), Target.CUDA) as judge:
            built = judge.compile(candidate)
            timed = judge.benchmark(candidate)
        if not isinstance(built, Built) or isinstance(timed, Fault):
            sys.exit(f"{file} is not timed: {built if isinstance(built, Fault) else timed}")
        durations = _kernel_times_ns(task, candidate, program, own_names(built.extensions))
        kernel_ns = sorted(durations)[len(durations) // 2]
        print(
            f"{file}: {timed.median_ns / 1e3:.2f} us, ncu {kernel_ns / 1e3:.2f} us (median of {len(durations)}): "
            f"{timed.median_ns / kernel_ns - 1.0:+.2%}",
            flush=True,
        )


def _kernel_times_ns(task: str, candidate: Candidate, program: str, own: frozenset[str]) -> list[float]:
    session = Session(find_task(task), Target.CUDA, Limits(), print)
    sizes = session.task.facts.benchmark_sizes(Target.CUDA)
    with tempfile.TemporaryDirectory(prefix="kernelwright-ncu-") as name:
        log = Path(name) / "kernels.csv"
        command = [program, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
        command += ["--metrics", "gpu__time_duration.sum", "--clock-control", "none", "--cache-control", "all"]
        folders = [Path(program).resolve().parent.parent, Path(program).resolve().parent]
        standalone = Standalone(command, Path(name), gpu=True, read=folders, environment={})
        try:
            worker = standalone.spawn(session.memory_bytes(sizes) + (64 << 20), _NCU_LIMIT_S)
            subject = Subject(worker, session.builder, candidate, session.device, Limits(_NCU_LIMIT_S, _NCU_LIMIT_S))
            state = session.draws.state(session.oracle.template)
            session.ready(subject, state)
            inputs = session.draws.inputs(session.task.facts, Trial(sizes, USUAL, 0))
            for _ in range(NCU_CALLS):
                subject.call(inputs, session.updated_state(state), session.workload.output_bytes, watch=False)
            standalone.finish(worker, time.monotonic() + _NCU_LIMIT_S)
            subject.close()
        finally:
            standalone.close()
            session.close()
        lines = log.read_text(encoding="utf-8").splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    # Below the header is a line of units.
    rows = list(csv.DictReader(io.StringIO("\n".join([lines[header], *lines[header + 2 :]]))))
    return [float(row["gpu__time_duration.sum"].replace(",", "")) for row in rows if bare(row["Kernel Name"]) in own]


def main(arguments: list[str]) -> None:
    """Run one of the three comparisons."""
    match arguments:
        case ["itself", task, target, file, *rest]:
            itself(task, target, file, int(rest[0]) if rest else 20)
        case ["slower", task, file, *rest]:
            slower(task, file, int(rest[0]) if rest else 10)
        case ["ncu", task, *files] if files:
            ncu(task, files)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    if os.environ.get("OMP_WAIT_POLICY") != "passive":
        # As the command line has it; it must be set before PyTorch is imported.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_WAIT_POLICY": "passive"})
    main(sys.argv[1:])
