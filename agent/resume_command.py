"""What `resume` does: goes on with a run, unfinished rollouts first, then those that its strategy still wants."""

from dataclasses import replace

from agent.choice import Choice, choose, require_prices
from agent.recorded import NAME as RECORDED
from agent.running import roll_out
from agent.session import Plan
from runs.config import Driver, Limits, ModelOptions, RunConfig
from runs.find import find_run
from runs.origin import StrategyConfig
from runs.strategy_name import StrategyName
from tasks.errors import UsageError
from tasks.loader import find_task
from tasks.target import Target
from tools.required_sandbox import RequiredSandbox, require_sandbox


def resume_run(
    run: str,
    *,
    base_url: str | None,
    options: ModelOptions,
    limits: Limits,
    budget: Limits,
    require: RequiredSandbox | None,
) -> None:
    """Go on with a run; ends the program with what ended the rollouts.

    Args:
        run: its path, or its id.
        base_url: the model's server, where it has moved.
        options: what is to be asked of it differently.
        limits: those of each rollout that are given replace the run's.
        budget: the same for the run as a whole.
        require: the least sandbox, as of `run`.
    """
    directory = find_run(run).run
    config = directory.config()
    for rollout in directory.rollouts():
        # What is damaged is told before anything is measured.
        directory.events(rollout)
    target = target_of(config)
    task = find_task(config.task_argument)
    require_sandbox(require, target)
    choice = choice_of(config, target, base_url, options)
    if config.prices is not None:
        # A run is counted at the prices that it began with.
        choice = replace(choice, prices=config.prices)
    plan = Plan(
        task=task,
        task_argument=config.task_argument,
        target=target,
        choice=choice,
        strategy=config.strategy or StrategyConfig(name=StrategyName.BEST_OF, rollouts=config.rollouts),
        limits=replaced(config.limits, limits),
        budget=replaced(config.budget, budget),
        root=directory.path.parents[1],
        note=None,
    )
    require_prices(plan.budget, choice)
    roll_out(plan, lambda _: directory)


def target_of(config: RunConfig) -> Target:
    """Where a run's candidates run; raises UsageError where it was imported."""
    if config.target is None:
        raise UsageError(
            f"The run {config.id} was imported, so there is nothing of ours to go on with. Its replies can be given "
            f"to the tools here: kernelwright run TASK --model recorded:{config.id}"
        )
    return config.target


def choice_of(config: RunConfig, target: Target, base_url: str | None, asked: ModelOptions) -> Choice:
    """The model of a run, from a server that has perhaps moved, asked as before but for what `asked` sets.

    Raises:
        UsageError: there is none, because somebody else called the tools.
    """
    if config.driver is not Driver.MODEL:
        raise UsageError(
            f"The calls of the run {config.id} came from outside ({config.model}), so there is no model to ask. "
            "`kernelwright fork RUN --at TURN --model MODEL` has one go on; a run of `kernelwright tool` goes on by it."
        )
    model = config.model
    if config.recorded_from is not None:
        model = f"{RECORDED}:{config.recorded_from.rpartition('/')[0]}"
    known = config.model_options or ModelOptions()
    options = known.model_copy(update={name: getattr(asked, name) for name in asked.model_fields_set})
    return choose(model, base_url or config.base_url, config.task, target, asked=options)


def replaced(limits: Limits, by: Limits) -> Limits:
    """Limits with those that are given anew in the place of the old ones."""
    return limits.model_copy(update=by.model_dump(exclude_none=True))
