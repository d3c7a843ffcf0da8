"""How long a built candidate waits for its verdict and its figures.

    python benchmarks/evaluate.py TASK TARGET FILE [REPEATS]

The candidate is built before. Each repeat evaluates it in a warm session: fork server, reference and baselines are
there, as for every candidate of a session but the first. `one after another` draws a new verification plan for each, as
in an optimization run; `fixed` shares one, and has the next candidate's worker started ahead, as `score` does for
files. What the first evaluation of a session takes, with its baselines, stands apart. Each line of medians is followed
by all seconds as a JSON object.
"""

import json
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import BuildResult, Timed, Verified

REPEATS = 5


def seconds_of(judge: Judge, candidate: Candidate, build: BuildResult) -> dict[str, float]:
    """How long an evaluation takes that must come to its end, and its two stages."""
    began = time.perf_counter()
    found = judge.evaluate(candidate, build=build)
    whole = time.perf_counter() - began
    if not isinstance(found.verify, Verified) or not isinstance(found.benchmark, Timed):
        raise SystemExit(f"{found.verdict}: {found.message}")
    return {"evaluation": whole, "verify": found.verify.seconds, "benchmark": found.benchmark.seconds}


def session(task: str, target: Target, candidate: Candidate, repeats: int, *, fixed: bool) -> list[dict[str, float]]:
    """The seconds of each evaluation of one session; the first, with its baselines, stands first."""
    with Judge(find_task(task), target, fixed_candidates=fixed) as judge:
        build = judge.compile(candidate)
        return [seconds_of(judge, candidate, build) for _ in range(1 + repeats)]


def main(task: str, target: str, file: str, repeats: str = str(REPEATS)) -> None:
    """Measure both kinds of session and print them."""
    candidate = Candidate(Path(file).read_bytes().decode())
    print(f"{task}, {file}, {target}, PyTorch {version('torch')}, Python {platform.python_version()}")
    for kind, fixed in (("one after another", False), ("fixed", True)):
        first, *others = session(task, Target(target), candidate, int(repeats), fixed=fixed)
        medians = {stage: statistics.median(each[stage] for each in others) for stage in first}
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in medians.items())
        print(f"{kind}: {stages}; the first {first['evaluation']:.2f} s")
        seconds = [first, *others]
        print(json.dumps({"task": task, "target": target, "file": file, "session": kind, "seconds": seconds}))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
