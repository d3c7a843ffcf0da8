"""What `run` does: lets a model work on a task within its limits, keeps the transcript, prints the table of turns."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from agent.budget import RunBudget
from agent.choice import choose, require_prices
from agent.progress import Progress
from agent.scheduling import carry_out
from agent.session import Plan, Session, create
from agent.workplace import Workplace, workplace
from runs.config import Limits, ModelOptions
from runs.events import Ended, EndReason
from runs.origin import StrategyConfig
from runs.store import RunDirectory, check_writable
from runs.summary import summarize
from runs.terminal import make_console, totals, turns_table
from tasks.loader import find_task
from tasks.target import Target
from tools.required_sandbox import RequiredSandbox, require_sandbox

INTERRUPTED_EXIT = 130
FAULTS = (EndReason.MODEL_SERVER_ERROR, EndReason.TOOL_FAULT, EndReason.INTERNAL_ERROR)


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
    console = make_console()
    with _termination_as_interrupt(), Progress(console, several=strategy.parallel > 1) as progress:
        if choice.by_default:
            progress.say("No key is set (OPENAI_API_KEY), so the replies of a recorded run are used.")
        progress.say(f"{found.name} on {chosen_target.value}, {choice.recorded_from or choice.name}")
        progress.note("measuring the baselines")
        with workplace(found, chosen_target, strategy.parallel, progress.note) as place:
            run_directory = create(plan, place.briefing)
            session = Session(
                run=run_directory,
                config=run_directory.config(),
                strategy=strategy,
                choice=choice,
                briefing=place.briefing,
                make_tools=place.make_tools,
                watch=progress.watcher,
                budget=RunBudget(budget, choice.prices),
            )
            ends = _carry_out(session, place)
    _conclude(console, run_directory, ends)


def _carry_out(session: Session, place: Workplace) -> list[Ended]:
    """All rollouts: one after the other in this thread, or several at once in threads of their own."""
    if session.strategy.parallel == 1:
        ends = []
        while (work := session.next_work()) is not None:
            ends.append(work())
        return ends

    def stop() -> None:
        session.interruption.stop()
        place.hang_up()

    return carry_out(session.next_work, session.strategy.parallel, stop)


def _conclude(console: Console, run_directory: RunDirectory, ends: list[Ended]) -> None:
    """The tables of turns and where the transcripts are; exits by what ended the rollouts."""
    for rollout in run_directory.rollouts():
        summary = summarize(run_directory.events(rollout))
        console.print()
        console.print(turns_table(summary.rows, title=f"{summary.task} on {summary.target.value}, {rollout}"))
        console.print(totals(summary))
        console.print(f"transcript: {run_directory.transcript(rollout)}", soft_wrap=True, markup=False)
    reasons = {end.reason for end in ends}
    if EndReason.INTERRUPTED in reasons:
        raise typer.Exit(INTERRUPTED_EXIT)
    if reasons.intersection(FAULTS):
        raise typer.Exit(3)


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does, with a complete transcript."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
