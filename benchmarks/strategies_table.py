"""What `benchmarks/strategies.py` writes down, and the tables that are made of it."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from agent.simulated.variant import Variant
from runs.strategy_name import StrategyName
from tasks.record import Record
from tools.results import Timed

NEAR = 0.95
"""A run is said to have come near where its kernel reaches this share of the best kernel's speedup."""
_RESAMPLES = 10_000
_SEED = 20261130


class Member(Record):
    """One kernel of the family, as it was measured."""

    variant: Variant
    timed: Timed


class Result(Record):
    """What one run found."""

    strategy: StrategyName
    seed: int
    turns: int
    best: Variant | None
    """None where nothing right was timed."""
    claimed_speedup: float | None
    """As measured in the run."""
    evaluations: int
    """Measurements of a candidate's time."""


def lines_of(path: Path) -> list[bytes]:
    """The lines of a file; none where there is no file."""
    return path.read_bytes().splitlines() if path.exists() else []


def read_family(out: Path) -> dict[Variant, Timed]:
    """What `family` has written."""
    return {member.variant: member.timed for member in map(Member.model_validate_json, lines_of(out / "family.jsonl"))}


def table(out: Path) -> str:
    """All tables that the files allow, as Markdown."""
    family = {variant: timed.speedup for variant, timed in read_family(out).items()}
    speedups = np.array(sorted(family.values()))
    best = max(family, key=lambda variant: family[variant])
    parts = [
        f"{len(family)} kernels; speedups {speedups[0]:.2f} to {speedups[-1]:.2f}, median {np.median(speedups):.2f}; "
        f"{np.sum(speedups >= NEAR * speedups[-1])} within {1 - NEAR:.0%} of the best, which is "
        f"{best.model_dump(exclude={'fault'})}."
    ]
    for name in ("measured", "replayed"):
        results = [Result.model_validate_json(line) for line in lines_of(out / f"{name}.jsonl")]
        for turns in sorted({each.turns for each in results}):
            parts.append(_table(f"{name}, {turns} turns a run", [r for r in results if r.turns == turns], family))
    return "\n\n".join(parts)


def _table(title: str, results: Iterable[Result], family: dict[Variant, float]) -> str:
    rows = [
        f"{title}:",
        "",
        "| strategy | seeds | median speedup found [95 %] | lowest | runs that came near the best | that found it "
        "| measurements a run | claimed over recorded |",
        "|---|---|---|---|---|---|---|---|",
    ]
    results = list(results)
    highest = max(family.values())
    for strategy in StrategyName:
        own = [each for each in results if each.strategy is strategy]
        if not own:
            continue
        found = np.array([0.0 if each.best is None else family[each.best] for each in own])
        claims = [
            each.claimed_speedup / family[each.best]
            for each in own
            if each.best is not None and each.claimed_speedup is not None
        ]
        low, high = _interval_of_median(found)
        rows.append(
            f"| {strategy} | {len(own)} | {np.median(found):.2f} [{low:.2f}, {high:.2f}] | {found.min():.2f} "
            f"| {np.mean(found >= NEAR * highest):.0%} | {np.mean(found == highest):.0%} "
            f"| {np.mean([each.evaluations for each in own]):.1f} | {np.median(claims):.2f} |"
        )
    return "\n".join(rows)


def _interval_of_median(values: "np.ndarray") -> tuple[float, float]:
    """A percentile bootstrap over the seeds."""
    random = np.random.default_rng(_SEED)
    medians = np.median(random.choice(values, (_RESAMPLES, len(values))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)
