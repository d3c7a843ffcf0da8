"""The comparison of strategies, on a family whose best kernel is known."""

import math
import sys
from pathlib import Path

import pytest

from agent.simulated.model import FAULTS
from agent.simulated.variant import Variant, all_variants, text_of
from runs.strategy_name import StrategyName
from tasks.spec import Precision, Target
from tools.briefing import Briefing, Machine
from tools.candidate import Candidate
from tools.results import Fault, Interval, Timed
from tools.verdict import Verdict

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from strategies import ROLLOUTS, compare, one_run
from strategies_replay import ReplayedFamily
from strategies_table import Member, Result, lines_of, table

BRIEFING = Briefing(
    task="causal",
    title="A family whose times are made up",
    mode="eval",
    target=Target.CPU,
    precision=Precision.FP32,
    source="class Model: ...",
    sizes={"N": 1},
    input_shapes={"x": (1,)},
    parameters={},
    notes="",
    machine=Machine(
        device="None", cores=1, cache_bytes=0, peak_bytes_per_s=None, peak_flops_per_s=None, torch="", python=""
    ),
    flop_count=1,
    byte_count=1,
    floor_ns=None,
    baselines=(),
)


def speedup_of(variant: Variant) -> float:
    """Each parameter helps by itself: the best has the largest tile, and everything switched on."""
    switches = variant.threads, variant.packed, variant.taps_outside, variant.fixed_taps
    return math.sqrt(variant.outputs * variant.times) * math.pow(1.5, sum(switches)) / 8


def timed(variant: Variant) -> Timed:
    speedup = speedup_of(variant)
    return Timed(
        candidate=Candidate(text_of(variant)).id,
        median_ns=1e6 / speedup,
        baseline="eager",
        baseline_ns=1e6,
        speedup=speedup,
        speedup_interval=Interval(low=0.99 * speedup, high=1.01 * speedup),
        baselines=(),
        floor_ns=None,
        prepare_ns=0,
        wall_median_ns=1e6 / speedup,
        candidate_samples_ns=(),
        baseline_samples_ns=(),
        sandbox="",
        seconds=0.0,
    )


FAMILY = ReplayedFamily({variant: timed(variant) for variant in all_variants()})
BEST = Variant(outputs=8, times=64, threads=True, packed=True, taps_outside=True, fixed_taps=True)


@pytest.mark.parametrize("strategy", list(StrategyName))
def test_a_run_spends_its_turns_and_the_same_seed_finds_the_same(strategy: StrategyName) -> None:
    found = one_run(strategy, 3, 16, FAMILY, BRIEFING)
    assert found == one_run(strategy, 3, 16, FAMILY, BRIEFING)
    assert 16 % ROLLOUTS[strategy] == 0
    assert 0 < found.evaluations <= 16
    assert found.best is not None and found.claimed_speedup == pytest.approx(speedup_of(found.best))


def test_with_many_turns_the_best_of_an_easy_family_is_found() -> None:
    assert one_run(StrategyName.SINGLE, 0, 150, FAMILY, BRIEFING).best == BEST


def test_the_replay_finds_the_faults_that_the_tools_find() -> None:
    answers = {
        fault: [type(answer).__name__ if not isinstance(answer, Fault) else answer.verdict for answer in asked(fault)]
        for fault in ("", *FAULTS)
    }
    assert answers == {
        "": ["Built", "Verified", "Timed"],
        "bracket left open": 3 * [Verdict.BUILD_FAILED],
        "wrong tap order": ["Built", Verdict.INCORRECT, Verdict.STALE_OUTPUT],
        "missing tail": ["Built", Verdict.INCORRECT, Verdict.STALE_OUTPUT],
    }


def asked(fault: str) -> list[object]:
    candidate = Candidate(text_of(Variant.model_validate({"times": 16, "fault": fault})))
    return [FAMILY.compile(candidate), FAMILY.verify(candidate), FAMILY.benchmark(candidate)]


def test_a_comparison_goes_on_where_it_was_stopped_and_its_table_says_what_was_found(tmp_path: Path) -> None:
    family = [Member(variant=variant, timed=timed(variant)).model_dump_json() for variant in all_variants()]
    (tmp_path / "family.jsonl").write_text("\n".join(family) + "\n")
    kept = Result(strategy=StrategyName.SINGLE, seed=0, turns=8, best=BEST, claimed_speedup=16.0, evaluations=5)
    (tmp_path / "replayed.jsonl").write_text(kept.model_dump_json() + "\n")
    compare(tmp_path, "replayed", 2, 8, FAMILY, BRIEFING)
    results = [Result.model_validate_json(line) for line in lines_of(tmp_path / "replayed.jsonl")]
    assert results[0] == kept
    assert sorted((each.strategy, each.seed) for each in results) == sorted(
        (strategy, seed) for strategy in StrategyName for seed in range(2)
    )
    said = table(tmp_path)
    # By hand: the square root of 512 times 1.5 to the fourth, over 8.
    assert "256 kernels; speedups 0.35 to 14.32" in said
    (row,) = (line for line in said.splitlines() if line.startswith("| single | 2 |"))
    assert "| 50% | 50% |" in row
