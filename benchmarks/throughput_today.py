"""The other arm of the throughput benchmark: what people do today.

Candidates are imported, which builds them with PyTorch's own `load_inline`, in a pool of as many processes as there are
cores. Each that is built is evaluated in a fresh process, one at a time on the device, while others are being built: 5
trials of `torch.allclose` against the eager reference on the benchmark shape, with tolerances of 0.01 as KernelBench
has them, and 100 timed calls. Nothing is confined, and nothing is checked beyond that.

    python benchmarks/throughput_today.py TASK TARGET FILE      evaluates one candidate that is built
"""

import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch
from throughput_candidates import Variant

from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.draws import input_shape
from tools.jobs import Span

TRIALS, WARM_UP_CALLS, TIMED_CALLS = 5, 3, 100
TOLERANCE = 1e-2
_SEED = 42


def _build(file: Path) -> tuple[str, float, float]:
    """Import a candidate, which builds it; returns who did it, and from when to when."""
    started_s = time.time()
    runpy.run_path(str(file), run_name="candidate")
    return f"builder:{os.getpid()}", started_s, time.time()


def evaluate_today(candidates: Sequence[Variant], target: Target, folder: Path) -> Iterator[tuple[str, list[Span]]]:
    """Build and evaluate candidates; what came of each (`correct`, or what was printed last), and when.

    `folder` takes the files and the builds; it should be empty.
    """
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "extensions")
    cores = len(os.sched_getaffinity(0))
    # Not forked: PyTorch must start anew in each.
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as builders:
        building = {}
        for each in candidates:
            file = folder / f"{each.name}.py"
            file.write_text(each.text, encoding="utf-8")
            building[builders.submit(_build, file)] = each, file
        for built in as_completed(building):
            each, file = building[built]
            candidate = Candidate(each.text).id
            who, *times = built.result()
            build = Span(stage="build", where=who, candidate=candidate, started_s=times[0], ended_s=times[1])
            started_s = time.time()
            argv = [sys.executable, __file__, each.task, target, str(file)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            outcome = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]
            span = Span(
                stage="benchmark", where=f"{target}:0", candidate=candidate, started_s=started_s, ended_s=time.time()
            )
            yield outcome, [build, span]


def _evaluate(task_name: str, target: Target, file: str) -> tuple[bool, float]:
    """Whether a candidate is right, and its median time in milliseconds."""
    task = find_task(task_name)
    reference = task.load()
    device = "cuda" if target is Target.CUDA else "cpu"
    sizes = task.facts.benchmark_sizes(target)
    shapes = [input_shape(spec, sizes) for spec in task.facts.inputs]
    module = runpy.run_path(file, run_name="candidate")
    models = []
    for model_class in (reference.model_class, module["ModelNew"]):
        torch.manual_seed(_SEED)
        models.append(model_class(*reference.init_inputs).to(device))
    eager, candidate = models
    with torch.no_grad():
        right = True
        for _ in range(TRIALS):
            inputs = [torch.randn(shape, device=device) for shape in shapes]
            right &= torch.allclose(eager(*inputs), candidate(*inputs), atol=TOLERANCE, rtol=TOLERANCE)
        for _ in range(WARM_UP_CALLS):
            candidate(*inputs)
        times = sorted(_timed_ms(candidate, inputs, device) for _ in range(TIMED_CALLS))
    return bool(right), times[len(times) // 2]


def _timed_ms(model: torch.nn.Module, inputs: list[torch.Tensor], device: str) -> float:
    if device == "cpu":
        started = time.perf_counter()
        model(*inputs)
        return (time.perf_counter() - started) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    model(*inputs)
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


if __name__ == "__main__":
    is_right, median_ms = _evaluate(sys.argv[1], Target(sys.argv[2]), sys.argv[3])
    print("correct" if is_right else f"incorrect {json.dumps(median_ms)}")
