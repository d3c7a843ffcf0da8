"""A run: its configuration is written down, then its strategy says what each rollout starts from, to the end."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from agent.budget import Budget, RunBudget
from agent.choice import Choice
from agent.control import EndRollout
from agent.interruption import InterruptibleClient, Interruption
from agent.loop import Rollout
from agent.pasts import Pasts
from agent.prompt import opening, system_prompt
from agent.strategies.choosing import strategy_of
from agent.strategies.floor import is_near
from agent.strategies.strategy import Start
from runs.config import Limits, RunConfig
from runs.events import Culprit, Ended, EndReason, Event, RolloutStarted
from runs.origin import StrategyConfig
from runs.store import RunDirectory, create_run, new_run_id
from runs.surroundings import commit, versions
from tasks.loader import Task
from tasks.spec import Target
from tools.briefing import Briefing

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools

MOST_FAULTS = 2
"""So many rollouts in a row that the server, the machine or the harness ended: then no further one is started."""
_FAULTS = (Culprit.SERVER, Culprit.MACHINE, Culprit.HARNESS)


@dataclass(frozen=True)
class Plan:
    """What a run is to do."""

    task: Task
    task_argument: str
    target: Target
    choice: Choice
    strategy: StrategyConfig
    limits: Limits
    """Of each rollout."""
    budget: Limits
    """Of all rollouts together."""
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
            rollouts=plan.strategy.rollouts,
            strategy=plan.strategy,
            limits=plan.limits,
            budget=plan.budget,
            prices=plan.choice.prices,
            model_options=plan.choice.options,
            versions=versions(),
            commit=commit(),
            machine=briefing.machine,
            provenance=plan.note or _provenance(plan.choice),
        ),
    )


@dataclass
class Session:
    """The rollouts of one run. They may go on in threads of their own; `next_work` is for one thread only."""

    run: RunDirectory
    config: RunConfig
    strategy: StrategyConfig
    choice: Choice
    briefing: Briefing
    make_tools: "Callable[[], Tools]"
    watch: Callable[[str], Callable[[Event], None]]
    """Gives whoever watches the rollout of a name."""
    budget: RunBudget
    interruption: Interruption = field(default_factory=Interruption)
    _begun: list[RolloutStarted] = field(default_factory=list)
    _ends: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pasts = Pasts(self.run)
        self._strategy = strategy_of(self.strategy)
        self._lock = threading.Lock()

    def next_work(self) -> Callable[[], Ended] | None:
        """The next rollout, ready to be carried out; None where none is to be started now."""
        if self.interruption.stopping.is_set() or self._is_over():
            return None
        pasts = self._pasts.of(self._begun)
        if is_near(pasts, self.briefing.floor_ns):
            return None
        start = self._strategy.next_start(pasts)
        return None if start is None else self._begin(start, f"rollout-{len(pasts) + 1}")

    def _is_over(self) -> bool:
        """Whether what has happened forbids further rollouts."""
        with self._lock:
            last = self._ends[-MOST_FAULTS:]
        if any(end.reason in (EndReason.INTERRUPTED, EndReason.QUOTA_EXHAUSTED) for end in last):
            return True
        if len(last) == MOST_FAULTS and all(end.culprit in _FAULTS for end in last):
            return True
        try:
            self.budget.check()
        except EndRollout:
            return True
        return False

    def _begin(self, start: Start, name: str) -> Callable[[], Ended]:
        tools = self.make_tools()
        for parent in reversed(start.parents):
            tools.remember(parent.text)
        config = self.config
        started = RolloutStarted(
            turn=0,
            rollout=name,
            task=config.task,
            target=config.target,
            model=config.model,
            limits=config.limits,
            system_prompt=system_prompt(self.briefing, config.limits),
            opening=opening(start),
            origin=start.origin,
            tools=tuple(tools.definitions()),
            briefing=self.briefing,
        )
        self._begun.append(started)
        client = self.choice.make_client()
        if self.strategy.parallel > 1:
            client = InterruptibleClient(client, self.interruption)
        budget = Budget(config.limits, config.prices, run=self.budget)
        watch = self.watch(name)
        rollout = Rollout(self.run, started, client, tools, budget, watch, stopping=self.interruption.stopping)

        def work() -> Ended:
            ended = rollout.run()
            with self._lock:
                self._ends.append(ended)
            return ended

        return work


def _provenance(choice: Choice) -> str:
    if choice.recorded_from is None:
        return f"Made by `kernelwright run`: the replies are {choice.name}'s, the results are the tools'."
    return (
        f"Made by `kernelwright run`: the replies are those of {choice.recorded_from}, the results are the tools' here."
    )
