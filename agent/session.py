"""A run: its configuration is written down, then its rollouts follow one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from agent.budget import Budget
from agent.choice import Choice
from agent.loop import Rollout
from agent.progress import Progress
from agent.prompt import phrase, system_prompt
from runs.config import Limits, RunConfig
from runs.events import Ended, EndReason, RolloutStarted
from runs.store import RunDirectory, create_run, new_run_id
from runs.surroundings import commit, versions
from tasks.loader import Task
from tasks.spec import Target
from tools.briefing import Briefing

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools


@dataclass(frozen=True)
class Plan:
    """What a run is to do."""

    task: Task
    task_argument: str
    target: Target
    choice: Choice
    rollouts: int
    limits: Limits
    root: Path
    note: str | None


def create(plan: Plan, briefing: Briefing) -> RunDirectory:
    """Make the run's directory, with everything that is known before the first reply."""
    now = datetime.now(UTC)
    return create_run(
        plan.root,
        RunConfig(
            id=new_run_id(now),
            created=now,
            task=plan.task.name,
            task_argument=plan.task_argument,
            target=plan.target,
            model=plan.choice.name,
            base_url=plan.choice.base_url,
            recorded_from=plan.choice.recorded_from,
            rollouts=plan.rollouts,
            limits=plan.limits,
            prices=plan.choice.prices,
            model_options=plan.choice.options,
            versions=versions(),
            commit=commit(),
            machine=briefing.machine,
            provenance=plan.note or _provenance(plan.choice),
        ),
    )


def roll_out(
    plan: Plan, run: RunDirectory, briefing: Briefing, make_tools: "Callable[[], Tools]", progress: Progress
) -> list[Ended]:
    """All rollouts of a run, or those up to the one that was interrupted."""
    ends: list[Ended] = []
    for number in range(1, plan.rollouts + 1):
        tools = make_tools()
        started = RolloutStarted(
            turn=0,
            rollout=f"rollout-{number}",
            task=plan.task.name,
            target=plan.target,
            model=plan.choice.name,
            limits=plan.limits,
            system_prompt=system_prompt(briefing, plan.limits),
            opening=phrase("opening"),
            tools=tuple(tools.definitions()),
            briefing=briefing,
        )
        budget = Budget(plan.limits, plan.choice.prices)
        rollout = Rollout(run, started, plan.choice.make_client(), tools, budget, progress.watch)
        ends.append(rollout.run())
        if ends[-1].reason is EndReason.INTERRUPTED:
            break
    return ends


def _provenance(choice: Choice) -> str:
    if choice.recorded_from is None:
        return f"Made by `kernelwright run`: the replies are {choice.name}'s, the results are the tools'."
    return (
        f"Made by `kernelwright run`: the replies are those of {choice.recorded_from}, the results are the tools' here."
    )
