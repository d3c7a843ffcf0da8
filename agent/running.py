"""What `run` does: lets a model work on a task within its limits, keeps the transcript, prints the table of turns."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from agent.choice import choose, require_prices
from agent.progress import Progress
from agent.session import Plan, create, roll_out
from runs.config import Limits
from runs.events import Ended, EndReason
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
    target: Target | None,
    limits: Limits,
    rollouts: int,
    out: Path,
    note: str | None,
    require: RequiredSandbox | None,
) -> None:
    """Make a run, as the command's options say; ends the program with what ended the rollouts."""
    found = find_task(task)
    check_writable(out)
    # Judging needs PyTorch; a wrong name is to be reported without waiting for its import.
    from tools.judge import Judge
    from tools.targets import default_target
    from tools.toolbox import Toolbox

    chosen_target = target or default_target()
    require_sandbox(require, chosen_target)
    choice = choose(model, base_url, found.name, chosen_target)
    require_prices(limits, choice)
    plan = Plan(found, task, chosen_target, choice, rollouts, limits, out, note)
    console = make_console()
    with _termination_as_interrupt(), Progress(console) as progress:
        if choice.by_default:
            progress.say("No key is set (OPENAI_API_KEY), so the replies of a recorded run are used.")
        progress.say(f"{found.name} on {chosen_target.value}, {choice.recorded_from or choice.name}")
        progress.note("measuring the baselines")
        with Judge(found, chosen_target, progress=progress.note) as judge:
            briefing = judge.briefing()
            run_directory = create(plan, briefing)
            ends = roll_out(plan, run_directory, briefing, lambda: Toolbox(judge), progress)
    _conclude(console, run_directory, ends)


def _conclude(console: Console, run_directory: RunDirectory, ends: list[Ended]) -> None:
    """The tables of turns and where the transcripts are; exits by what ended the rollouts."""
    for rollout in run_directory.rollouts():
        summary = summarize(run_directory.events(rollout))
        console.print()
        console.print(turns_table(summary.rows, title=f"{summary.task} on {summary.target}, {rollout}"))
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
