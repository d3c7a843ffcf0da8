"""The words the model is given: Markdown files in `agent/prompts/`, filled in by Jinja."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from agent.ledger import Attempt
from agent.strategies.strategy import Start
from runs.config import Limits
from tools.briefing import Briefing

_FOLDER = Path(__file__).parent / "prompts"


def system_prompt(briefing: Briefing, limits: Limits) -> str:
    """What the model has to do, by which rules, with which tools, on which machine, against which times."""
    return _render(
        "system",
        briefing=briefing,
        limits=limits,
        fastest=min((b for b in briefing.baselines if b.median_ns), key=lambda b: b.median_ns or 0.0, default=None),
    )


def opening(start: Start) -> str:
    """The first message of a rollout: to begin, or to go on from what earlier rollouts have found."""
    if not start.parents and not start.lessons:
        return phrase("opening")
    return _render("continued", parents=start.parents, lessons=start.lessons)


def phrase(name: str) -> str:
    """One of the short fixed texts: `opening`, `nudge`, `cut_off`, `over`, `stuck`, `instructions`,
    `not_begun`, `killed`."""
    return _render(name)


def rollout_over(how: str) -> str:
    """What a client hears that calls a tool of a rollout that has ended; `how` says how it ended."""
    return _render("rollout_over", how=how)


def compaction_note(
    attempts: Sequence[Attempt], left_out: Mapping[str, int], best: Attempt | None, best_text: str, profile: str
) -> str:
    """What stands in the place of removed turns.

    Args:
        attempts: those that are listed, oldest first.
        left_out: how many older ones there were of each verdict.
        best: the best candidate so far; None where none was right and timed.
        best_text: its whole text.
        profile: what the last profile said; empty where there was none.
    """
    return _render("compacted", attempts=attempts, left_out=left_out, best=best, best_text=best_text, profile=profile)


def _render(name: str, **values: object) -> str:
    return _environment().get_template(f"{name}.md").render(values).strip()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["us"] = _microseconds
    environment.filters["quantity"] = _quantity
    return environment


def _microseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.4g} us"


def _quantity(value: float) -> str:
    """A large number with a decimal prefix, for example `3.35 T`."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "
