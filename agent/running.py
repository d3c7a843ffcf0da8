"""What `run` does: lets a model work on a task within its limits, keeps the transcript, prints the table of turns."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from agent.choice import choose, require_prices
from agent.interruption import Interruption
from agent.progress import Progress
from agent.scheduling import at_once, one_by_one
from agent.session import Plan, Session, create
from agent.workplace import Workplace, workplace
from runs.config import Limits, ModelOptions
from runs.events import Culprit, Ended, EndReason
from runs.origin import StrategyConfig
from runs.store import RunDirectory, check_writable
from runs.summary import summarize
from runs.terminal import make_console, totals, turns_table
from tasks.loader import find_task
from tasks.target import Target
from tools.required_sandbox import RequiredSandbox, require_sandbox

INTERRUPTED_EXIT = 130
FAULTS = (Culprit.SERVER, Culprit.MACHINE, Culprit.HARNESS)
REFUSED = (EndReason.MODEL_SERVER_ERROR, EndReason.QUOTA_EXHAUSTED)
"""Ends with which the model's server let no rollout go on, whoever's fault that is."""


def run_on_task(
    task: str,
    *,
    model: str | None,
    base_url: str | None,
    options: ModelOptions,
    target: Target | None,
    strategy: StrategyConfig,
    limits: Limits,
    budget: Limits,
    out: Path,
    note: str | None,
    require: RequiredSandbox | None,
) -> None:
    """Make a run, as the command's options say; ends the program with what ended the rollouts."""
    found = find_task(task)
    check_writable(out)
    # Judging needs PyTorch; a wrong name is to be reported without waiting for its import.
    from tools.targets import default_target

    chosen_target = target or default_target()
    require_sandbox(require, chosen_target)
    choice = choose(model, base_url, found.name, chosen_target, asked=options)
    require_prices(budget, choice)
    plan = Plan(found, task, chosen_target, choice, strategy, limits, budget, out, note)
    roll_out(plan, lambda place: create(plan, place.briefing))


def roll_out(plan: Plan, open_run: Callable[[Workplace], RunDirectory]) -> None:
    """Carry out what is to be done of a run and tell what came of it; ends the program with what ended the rollouts."""
    choice, parallel = plan.choice, plan.strategy.parallel
    console = make_console()
    with _termination_as_interrupt(), Progress(console, several=parallel > 1) as progress:
        if choice.by_default:
            progress.say("No key is set (OPENAI_API_KEY), so the replies of a recorded run are used.")
        progress.say(f"{plan.task.name} on {plan.target.value}, {choice.recorded_from or choice.name}")
        progress.note("measuring the baselines")
        with workplace(plan.task, plan.target, parallel, progress.note) as place:
            run = open_run(place)
            interruption = Interruption()
            session = Session(plan, run, place.briefing, place.make_tools, progress.watcher, interruption)

            def stop() -> None:
                interruption.stop()
                place.hang_up()

            ends = one_by_one(session.next_work) if parallel == 1 else at_once(session.next_work, parallel, stop)
            if session.over:
                progress.say(f"no further rollout is started: {session.over}")
            elif not ends:
                progress.say("nothing was left to do: every rollout is over; higher limits (--turns) let some go on")
    _conclude(console, run, ends)


def _conclude(console: Console, run_directory: RunDirectory, ends: list[Ended]) -> None:
    """The tables of turns and where the transcripts are; exits by what ended the rollouts."""
    for rollout in run_directory.rollouts():
        summary = summarize(run_directory.events(rollout))
        console.print()
        console.print(turns_table(summary.rows, title=f"{summary.task} on {summary.target}, {rollout}"))
        console.print(totals(summary))
        console.print(f"transcript: {run_directory.transcript(rollout)}", soft_wrap=True, markup=False)
    if any(end.reason is EndReason.INTERRUPTED for end in ends):
        raise typer.Exit(INTERRUPTED_EXIT)
    if any(end.culprit in FAULTS or end.reason in REFUSED for end in ends):
        raise typer.Exit(3)


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does, with a complete transcript."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
