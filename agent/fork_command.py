"""What `fork` does: a new run that goes on from a turn of a rollout, perhaps with another model or other limits."""

from datetime import UTC, datetime
from pathlib import Path

from agent.choice import Choice, choose, require_prices
from agent.resume_command import choice_of, replaced, target_of
from agent.running import roll_out
from agent.session import Plan, create
from agent.toolset import Toolset
from agent.workplace import Workplace
from runs.config import ForkedFrom, Limits, ModelOptions, RunConfig
from runs.events import Event, RolloutStarted
from runs.find import Found, find_run
from runs.forking import begin_fork, candidates_of, history_up_to
from runs.origin import StrategyConfig
from runs.store import RunDirectory, check_writable
from runs.strategy_name import StrategyName
from runs.summary import started
from tasks.errors import UsageError
from tasks.loader import find_task
from tasks.target import Target
from tools.required_sandbox import RequiredSandbox, require_sandbox

ROLLOUT = "rollout-1"
"""The name of a fork's one rollout."""


def fork_run(
    run: str,
    at: int,
    *,
    model: str | None,
    base_url: str | None,
    options: ModelOptions,
    limits: Limits,
    budget: Limits,
    out: Path,
    note: str | None,
    require: RequiredSandbox | None,
) -> None:
    """Fork a rollout and go on with it; ends the program with what ended it.

    Args:
        run: the run's path or id, or the path of one of its rollouts where it has several.
        at: the last turn that is taken over.
        model: another model than the run's.
        base_url: another server.
        options: how that model is asked.
        limits: those that are given replace the run's; what the run has spent does not count.
        budget: the same for all limits that `run` gives to a run as a whole.
        out: under which the new run is kept.
        note: how it is made, for its record.
        require: the least sandbox, as of `run`.
    """
    found = find_run(run)
    rollout = _one_rollout(found)
    config, events = found.run.config(), found.run.events(rollout)
    target = target_of(config)
    history = history_up_to(events, at)
    # What is damaged is told before anything is measured or made.
    candidates_of(found.run, started(events), history)
    task = find_task(config.task_argument)
    check_writable(out)
    require_sandbox(require, target)
    choice = _choice(config, target, model, base_url, options)
    source = f"{found.run.path.parent.name}/{found.run.id}"
    plan = Plan(
        task=task,
        task_argument=config.task_argument,
        target=target,
        choice=choice,
        strategy=StrategyConfig(name=StrategyName.SINGLE, rollouts=1),
        limits=replaced(config.limits, limits),
        budget=replaced(config.budget, budget),
        root=out,
        note=note or f"Made by `kernelwright fork`: {choice.name} goes on from turn {at} of {source}/{rollout}.",
        forked_from=ForkedFrom(run=source, rollout=rollout, turn=at),
    )
    require_prices(plan.budget, choice)
    roll_out(plan, lambda place: _begin(plan, place, found.run, started(events), history))


def _begin(
    plan: Plan, place: Workplace, source: RunDirectory, before: RolloutStarted, history: tuple[Event, ...]
) -> RunDirectory:
    """The new run on the disk. What the model was told at first stays as it was, because the replies answer it."""
    run = create(plan, place.briefing)
    beginning = before.model_copy(
        update={
            "rollout": ROLLOUT,
            "time": datetime.now(UTC),
            "model": plan.choice.name,
            "limits": plan.limits,
            "tools": tuple(Toolset(place.make_tools(), tuple).definitions()),
        }
    )
    begin_fork(run, source, beginning, history)
    return run


def _one_rollout(found: Found) -> str:
    if len(found.rollouts) > 1:
        listed = ", ".join(str(found.run.path / name) for name in found.rollouts)
        raise UsageError(f"The run has several rollouts; name one by its path: {listed}.")
    return found.rollouts[0]


def _choice(
    config: RunConfig, target: Target, model: str | None, base_url: str | None, options: ModelOptions
) -> Choice:
    if model is None:
        return choice_of(config, target, base_url, options)
    return choose(model, base_url, config.task, target, asked=options)
