"""How runs look on a terminal: consoles, tables of turns, and text that cannot steer the terminal."""

import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runs.config import Spending
from runs.origin import Origin
from runs.summary import SHORT_ID, CallRow, Outcome, RolloutSummary, faulty

PLAIN_WIDTH = 160
"""Columns where the output is not a terminal, whose width could be asked."""


_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, overrides of the writing direction and halves of surrogate pairs."""


def make_console() -> Console:
    """A console on standard output: coloured on a terminal, plain text of a fixed width elsewhere."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def printable(text: str) -> str:
    """The text without control characters, so that what a model wrote cannot steer the terminal."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def duration(nanoseconds: float | None) -> str:
    """A time with three digits and a fitting unit."""
    if nanoseconds is None:
        return ""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def speedup(outcome: Outcome) -> str:
    """A speedup with its interval."""
    if outcome.speedup is None:
        return ""
    interval = outcome.speedup_interval
    return f"{outcome.speedup:.2f}x" + ("" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})")


def verdict(outcome: Outcome) -> Text:
    """A verdict, red where it is a fault or a refusal."""
    bad = faulty(outcome) or outcome.verdict == "refused"
    return Text(outcome.verdict, style="red" if bad else "green")


def short(candidate: str | None) -> str:
    """The first characters of a candidate's id."""
    return "" if candidate is None else candidate[:SHORT_ID]


def whence(origin: Origin) -> str:
    """What a rollout started from."""
    island = "" if origin.island is None else f", island {origin.island}"
    parents = " and ".join(map(short, origin.parents))
    return f"{origin.strategy}{island}, " + (f"from {parents}" if parents else "afresh")


def call_line(row: CallRow) -> Text:
    """One tool call as a line of progress."""
    figures = "  ".join(part for part in (duration(row.outcome.median_ns), speedup(row.outcome)) if part)
    line = Text(f"turn {row.turn}  {printable(row.tool)}  {short(row.candidate)}  ")
    line.append_text(verdict(row.outcome))
    return line.append(f"  {figures}" if figures else "").append(
        "" if row.seconds is None else f"  [{row.seconds:.1f} s]"
    )


def turns_table(rows: Sequence[CallRow], title: str) -> Table:
    """The table of turns."""
    table = Table(title=Text(title), title_justify="left")
    for name in ("turn", "tool", "candidate", "verdict"):
        table.add_column(name)
    for name in ("time", "speedup", "seconds"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row.turn),
            Text(printable(row.tool)),
            short(row.candidate),
            verdict(row.outcome),
            duration(row.outcome.median_ns),
            speedup(row.outcome),
            "" if row.seconds is None else f"{row.seconds:.1f}",
        )
    return table


def totals(summary: RolloutSummary) -> Text:
    """The totals of a rollout, in two or three lines."""
    copied = f" ({summary.copied_turns} copied)" if summary.copied_turns else ""
    lines = [
        f"ended: {summary.reason or 'not'} ({printable(summary.message)})",
        f"{summary.turns} turns{copied}, {_spent(summary.spent)}, {summary.retries} retries",
    ]
    if summary.best is not None:
        best = summary.best
        lines.append(f"best: candidate {short(best.candidate)} in turn {best.turn}, {speedup(best.outcome)}")
    return Text("\n".join(lines))


def _spent(spent: Spending | None) -> str:
    if spent is None:
        return "tokens, cost and time not all known"
    cost = "cost unknown" if spent.dollars is None else f"${spent.dollars:.4f}"
    return f"{spent.input_tokens} input and {spent.output_tokens} output tokens, {cost}, {spent.seconds:.0f} s"
