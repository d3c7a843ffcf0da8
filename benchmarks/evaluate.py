"""How long a built candidate waits for its verdict and its figures.

    python benchmarks/evaluate.py TASK TARGET FILE [REPEATS]

The candidate is built before. Each repeat verifies and benchmarks it in a warm session: fork server, reference and
baselines are there, as for every candidate of a session but the first. `one after another` draws a new verification
plan for each, as in an optimization run; `fixed` shares one, as `score` does for files. What the first evaluation of a
session takes, with its baselines, stands apart. Written as one JSON object a line after the table.
"""

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import Built, Fault, Timed, Verified

REPEATS = 5


def seconds_of(question: Callable[[Candidate], object], candidate: Candidate) -> float:
    """How long one question takes that must be answered with yes."""
    began = time.perf_counter()
    result = question(candidate)
    if isinstance(result, Fault):
        raise SystemExit(f"{result.stage}: {result.verdict}: {result.message}")
    assert isinstance(result, Built | Verified | Timed)
    return time.perf_counter() - began


def session(task: str, target: Target, candidate: Candidate, repeats: int, *, fixed: bool) -> dict[str, list[float]]:
    """The seconds of each stage in one session; the first verification and benchmark stand apart."""
    with Judge(find_task(task), target, fixed_candidates=fixed) as judge:
        found = {
            "build": [seconds_of(judge.compile, candidate)],
            "first verify": [seconds_of(judge.verify, candidate)],
            "first benchmark": [seconds_of(judge.benchmark, candidate)],
            "verify": [],
            "benchmark": [],
        }
        for _ in range(repeats):
            found["verify"].append(seconds_of(judge.verify, candidate))
            found["benchmark"].append(seconds_of(judge.benchmark, candidate))
    return found


def main(task: str, target: str, file: str, repeats: str = str(REPEATS)) -> None:
    """Measure both kinds of session and print them."""
    candidate = Candidate(Path(file).read_bytes().decode())
    print(f"{task}, {file}, {target}, PyTorch {version('torch')}, Python {platform.python_version()}")
    for kind, fixed in (("one after another", False), ("fixed", True)):
        found = session(task, Target(target), candidate, int(repeats), fixed=fixed)
        medians = {stage: statistics.median(seconds) for stage, seconds in found.items()}
        both = medians["verify"] + medians["benchmark"]
        print(f"{kind}: verify + benchmark {both:.2f} s; " + ", ".join(f"{k} {v:.2f}" for k, v in medians.items()))
        print(json.dumps({"task": task, "target": target, "file": file, "session": kind, "seconds": found}))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
