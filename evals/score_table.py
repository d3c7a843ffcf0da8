"""The tables that `score` prints for people: one row a candidate, then the scores with both denominators."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evals.score_line import ScoreLine
from evals.scores import FAST_P_THRESHOLDS, count_verdicts, fast_p, geometric_mean, pass_at_k
from tools.describe import summarize_runs
from tools.results import Interval
from tools.verdict import Verdict

_PASS_AT = (1, 5, 10)


def print_scores(console: Console, lines: Sequence[ScoreLine]) -> None:
    """Print the candidates, what went wrong, and the scores."""
    console.print(_candidates(lines))
    for line in lines:
        if line.verdict is not Verdict.CORRECT:
            console.print(Text(f"{line.file}: {line.verdict}: {line.message}"))
        for said in summarize_runs(line.sanitizer):
            console.print(Text(f"{line.file}: {said}"))
    console.print(_scores(lines))


def format_speedup(speedup: float | None, interval: Interval | None) -> str:
    """`1.23x [1.20, 1.26]`, or a dash."""
    if speedup is None:
        return "-"
    return f"{speedup:.3g}x" + (f" [{interval.low:.3g}, {interval.high:.3g}]" if interval is not None else "")


def _candidates(lines: Sequence[ScoreLine]) -> Table:
    classes = ", ".join(sorted({f"{line.precision} on {line.target}" for line in lines}))
    figures = "time: the median of single calls, by the slower of two clocks; speedup: the ratio of medians"
    table = Table("file", "verdict", caption=f"class {classes}; {figures}")
    for name in ("time", "fastest baseline", "speedup [99 %]", "other baselines", "of the floor", "seconds"):
        table.add_column(name, justify="right")
    for line in lines:
        others = [b for b in line.baselines if b.name != line.baseline and b.median_ns is not None]
        spent = line.seconds
        seconds = (spent.build, spent.verify or 0.0, spent.sanitizer or 0.0, spent.benchmark or 0.0)
        table.add_row(
            Text(Path(line.file).name),
            Text(line.verdict, style="green" if line.verdict is Verdict.CORRECT else "red"),
            _time(line.median_ns),
            "-" if line.baseline is None else f"{line.baseline} {_time(line.baseline_ns)}",
            format_speedup(line.speedup, line.speedup_interval),
            ", ".join(f"{b.name} {_time(b.median_ns)}" for b in others) or "-",
            "-" if line.floor_ns is None or not line.median_ns else f"{line.floor_ns / line.median_ns:.0%}",
            f"{sum(seconds):.1f}",
        )
    return table


def _scores(lines: Sequence[ScoreLine]) -> Table:
    outcomes = [line.outcome for line in lines]
    judged = sum(1 for outcome in outcomes if outcome.judged)
    table = Table(
        "score",
        f"of all {len(outcomes)}",
        f"of the {judged} judged",
        caption="judged: without the faults of the machine and of the harness",
    )
    for p in FAST_P_THRESHOLDS:
        score = fast_p(outcomes, p)
        of_judged = f"{score.of_judged:.3f} ({score.fast}/{judged})" if judged else "-"
        table.add_row(f"fast_{p:g}", f"{score.of_all:.3f} ({score.fast}/{len(outcomes)})", of_judged)
    correct = sum(1 for outcome in outcomes if outcome.verdict is Verdict.CORRECT)
    for k in (k for k in _PASS_AT if k <= len(outcomes) and len(outcomes) > 1):
        of_judged = f"{pass_at_k(judged, correct, k):.3f}" if k <= judged else "-"
        table.add_row(f"pass@{k}, if drawn alike", f"{pass_at_k(len(outcomes), correct, k):.3f}", of_judged)
    mean = geometric_mean(outcomes)
    if mean is not None:
        table.add_row(f"geometric mean over {mean.count} correct", format_speedup(mean.value, mean.interval), "")
    for verdict, count in count_verdicts(outcomes).items():
        table.add_row(Text(verdict), str(count), str(count) if _counts(lines, verdict) else "-")
    return table


def _counts(lines: Sequence[ScoreLine], verdict: Verdict) -> bool:
    return any(line.outcome.judged for line in lines if line.verdict is verdict)


def _time(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return "-"
    return f"{nanoseconds / 1e6:.4g} ms" if nanoseconds >= 1e6 else f"{nanoseconds / 1e3:.4g} us"
