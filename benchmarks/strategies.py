"""Which strategy spends a budget of turns best? A simulated model, kernels that are built and measured for real.

    python benchmarks/strategies.py family OUT                  every kernel of the family: built, verified, timed
    python benchmarks/strategies.py measured OUT [SEEDS] [TURNS]   runs whose every tool call is carried out
    python benchmarks/strategies.py replayed OUT [SEEDS] [TURNS]   runs that are answered from OUT/family.jsonl
    python benchmarks/strategies.py table OUT                   what came of it, as Markdown

The model is `agent.simulated.model`, which states its odds; the kernels are `agent.simulated.variant`; the problem is
`benchmarks/small/causal.py` on the host target. Every run has the same number of turns, whatever its strategy makes of
them. Each line that is written to OUT is kept: started again, a command goes on where it was stopped.

What counts of a run is the kernel that it calls its best, at the speedup that was measured for this kernel in `family`:
the highest of many noisy measurements is too high, the more so the more a strategy measures.
"""

import sys
import tempfile
from pathlib import Path

from strategies_replay import ReplayedFamily
from strategies_table import Member, Result, lines_of, read_family, table

from agent.choice import choose
from agent.pasts import Pasts
from agent.scheduling import one_by_one
from agent.session import Plan, Session, create
from agent.simulated.variant import Variant, all_variants, text_of, variants_in
from agent.strategies.strategy import right_ones
from runs.config import Limits
from runs.events import ToolReturned
from runs.origin import StrategyConfig
from runs.store import RunDirectory
from runs.strategy_name import StrategyName
from tasks.loader import find_task
from tasks.record import Record
from tasks.spec import Target
from tools.briefing import Briefing
from tools.candidate import Candidate
from tools.evaluator import Evaluator
from tools.judge import Judge
from tools.results import Timed, Verified
from tools.subject import Limits as CandidateLimits
from tools.toolbox import Toolbox

PROBLEM = Path(__file__).parent / "small" / "causal.py"
ROLLOUTS = {StrategyName.SINGLE: 1, StrategyName.BEST_OF: 4, StrategyName.REFINE: 4, StrategyName.EVOLVE: 8}
"""Into how many rollouts each strategy divides the turns."""
ROUNDS_S = 0.3
"""Of a measurement; the 2 s of usual runs would take most of the time, and the family differs by more than a little."""

ATTEMPTS = 3


def judge() -> Judge:
    """A judge of the problem, whose measurements are short."""
    return Judge(find_task(str(PROBLEM)), Target.CPU, limits=CandidateLimits(rounds_s=ROUNDS_S))


def measure_family(out: Path) -> None:
    """Build, verify and time every kernel that was not yet."""
    known = read_family(out)
    with judge() as answers:
        (out / "briefing.json").write_text(answers.briefing().model_dump_json())
        for variant in all_variants():
            if variant in known:
                continue
            timed = _timed(answers, variant)
            _append(out / "family.jsonl", Member(variant=variant, timed=timed))
            print(f"{variant.model_dump_json(exclude={'fault'})} {timed.speedup:.2f}", flush=True)


def _timed(answers: Judge, variant: Variant) -> Timed:
    """The time of a kernel that is right, as all of them are; a disturbed measurement is made again."""
    candidate = Candidate(text_of(variant))
    verified = answers.verify(candidate)
    if not isinstance(verified, Verified):
        raise SystemExit(f"{variant} should be right: {verified.message}")
    for _ in range(ATTEMPTS):
        timed = answers.benchmark(candidate)
        if isinstance(timed, Timed):
            return timed
        print(f"{variant} once more: {timed.message}", flush=True)
    raise SystemExit(f"{variant} could not be timed in {ATTEMPTS} attempts")


def compare(out: Path, name: str, seeds: int, turns: int, evaluator: Evaluator, briefing: Briefing) -> None:
    """Carry out the runs that are not in the file yet, seed by seed, so that what else goes on meets all strategies."""
    path = out / f"{name}.jsonl"
    done = {(each.strategy, each.seed, each.turns) for each in map(Result.model_validate_json, lines_of(path))}
    for seed in range(seeds):
        for strategy in StrategyName:
            if (strategy, seed, turns) not in done:
                found = one_run(strategy, seed, turns, evaluator, briefing)
                _append(path, found)
                if name == "measured":
                    print(found.model_dump_json(), flush=True)


def one_run(strategy: StrategyName, seed: int, turns: int, evaluator: Evaluator, briefing: Briefing) -> Result:
    """One run, from which only its result is kept."""
    rollouts = ROLLOUTS[strategy]
    config = StrategyConfig(name=strategy, rollouts=rollouts, seed=seed)
    choice = choose(f"simulated:{seed}", None, "causal", Target.CPU)
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            task=find_task(str(PROBLEM)),
            task_argument=str(PROBLEM),
            target=Target.CPU,
            choice=choice,
            strategy=config,
            limits=Limits(turns=max(1, turns // rollouts)),
            budget=Limits(turns=turns),
            root=Path(folder),
            note="benchmarks/strategies.py",
        )
        run = create(plan, briefing)
        one_by_one(Session(plan, run, briefing, lambda: Toolbox(evaluator), lambda _: lambda _: None).next_work)
        return _result(run, config, turns)


def _result(run: RunDirectory, config: StrategyConfig, turns: int) -> Result:
    best = next((attempt for _, attempt in right_ones(Pasts(run).of(()))), None)
    events = [event for name in run.rollouts() for event in run.events(name)]
    timed = [event for event in events if isinstance(event, ToolReturned) and isinstance(event.reply.result, Timed)]
    return Result(
        strategy=config.name,
        seed=config.seed,
        turns=turns,
        best=None if best is None else variants_in(run.candidate_text(best.candidate))[0],
        claimed_speedup=None if best is None else best.outcome.speedup,
        evaluations=len(timed),
    )


def _append(path: Path, record: Record) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(record.model_dump_json() + "\n")


def main() -> None:
    """Carry out one of the commands above."""
    command, out = sys.argv[1], Path(sys.argv[2])
    seeds, turns = (int(given) for given in (*sys.argv[3:], *("10", "16")[len(sys.argv) - 3 :]))
    out.mkdir(parents=True, exist_ok=True)
    if command == "family":
        measure_family(out)
    elif command == "table":
        print(table(out))
    elif command == "measured":
        with judge() as answers:
            compare(out, command, seeds, turns, answers, answers.briefing())
    elif command == "replayed":
        briefing = Briefing.model_validate_json((out / "briefing.json").read_bytes())
        compare(out, command, seeds, turns, ReplayedFamily(read_family(out)), briefing)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
