"""Measures candidates against copies of themselves: the ratio must be 1.00, and its interval must hold it.

    python benchmarks/self_comparison.py TASK TARGET FILE [REPEATS]

Prints one line a repeat and a summary; exits with 1 if more than one interval in twenty misses 1.00.
"""

import sys
from pathlib import Path

from tasks.loader import find_task
from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.results import Fault


def main(task: str, target: str, file: str, repeats: int) -> int:
    """Compare a candidate with itself several times, in new workers each time."""
    candidate = Candidate(Path(file).read_text(encoding="utf-8"))
    ratios, missed = [], 0
    with Judge(find_task(task), Target(target), allow_library=True) as judge:
        for number in range(1, repeats + 1):
            result = judge.benchmark(candidate, against=candidate)
            if isinstance(result, Fault):
                print(f"{result.verdict}: {result.message}", file=sys.stderr)
                return 2
            interval = result.speedup_interval
            ratios.append(result.speedup)
            missed += not interval.holds(1.0)
            print(
                f"{number:3}  ratio {result.speedup:.4f}  [{interval.low:.4f}, {interval.high:.4f}]  "
                f"{result.median_ns / 1e3:.1f} us a call",
                flush=True,
            )
    deviations = sorted(abs(ratio - 1.0) for ratio in ratios)
    print(f"median |ratio - 1| {deviations[len(deviations) // 2]:.3%}, largest {deviations[-1]:.3%}")
    print(f"{missed} of {repeats} intervals miss 1.00")
    return int(missed > repeats / 20)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    _, task, target, file, *rest = sys.argv
    sys.exit(main(task, target, file, int(rest[0]) if rest else 5))
