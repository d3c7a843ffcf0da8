"""A run: its configuration is written down, then its strategy says what each rollout starts from, to the end."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from agent.budget import Budget, RunBudget
from agent.choice import Choice
from agent.control import EndRollout
from agent.interruption import InterruptibleClient, Interruption
from agent.loop import Rollout
from agent.model import ModelClient
from agent.pasts import Pasts
from agent.prompt import opening, system_prompt
from agent.resuming import can_go_on, resumed, spending_of_run
from agent.strategies.choosing import strategy_of
from agent.strategies.floor import NEAR, is_near
from agent.strategies.strategy import Past, Start
from agent.toolset import Toolset
from runs.accounting import spending_of
from runs.config import ForkedFrom, Limits, RunConfig
from runs.events import Culprit, Ended, EndReason, Event, RolloutStarted
from runs.origin import StrategyConfig
from runs.store import RunDirectory, create_run, new_run_id
from runs.summary import started as started_event
from runs.surroundings import commit, versions
from tasks.errors import RunFormatError
from tasks.loader import Task, all_tasks
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
    forked_from: ForkedFrom | None = None


def create(plan: Plan, briefing: Briefing) -> RunDirectory:
    """Make the run's directory, with everything that is known before the first reply."""
    return create_run(plan.root, configuration(plan, briefing, new_run_id(datetime.now(UTC))))


def configuration(plan: Plan, briefing: Briefing, run_id: str) -> RunConfig:
    """What a run's record says of it before the first reply."""
    return RunConfig(
        id=run_id,
        created=datetime.now(UTC),
        task=plan.task.name,
        task_argument=plan.task_argument,
        target=plan.target,
        model=plan.choice.name,
        driver=plan.choice.driver,
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
        forked_from=plan.forked_from,
    )


def lasting_argument(task: Task) -> str:
    """How a run's record names a task so that it is found again from any directory."""
    return task.name if task in all_tasks() else str(task.path.resolve())


class Session:
    """The rollouts of one run, those of earlier processes included.

    They may go on in threads of their own; `next_work` itself is for one thread only.
    """

    def __init__(
        self,
        plan: Plan,
        run: RunDirectory,
        briefing: Briefing,
        make_tools: "Callable[[], Tools]",
        watch: Callable[[str], Callable[[Event], None]],
        interruption: Interruption | None = None,
    ) -> None:
        """`watch` gives whoever watches the rollout of a name; once stopped by `interruption`, all rollouts end."""
        self._plan = plan
        self._run = run
        self._briefing = briefing
        self._make_tools = make_tools
        self._watch = watch
        self._interruption = interruption or Interruption()
        self._context_tokens = None if plan.choice.options is None else plan.choice.options.context_tokens
        # A host's floor is at the clock that its kernel names, which cores exceed: twice its rate was seen.
        self._floor_ns = briefing.floor_ns if plan.target is Target.CUDA else None
        self._strategy = strategy_of(plan.strategy)
        self._pasts = Pasts(run)
        # One that was killed before its first event was whole has not begun.
        histories = {name: events for name in run.rollouts() if (events := run.events(name))}
        self._unfinished = deque(name for name, events in histories.items() if can_go_on(events, plan.limits))
        self._budget = RunBudget(plan.budget, plan.choice.prices, before=spending_of_run(tuple(histories.values())))
        self._begun: list[RolloutStarted] = []
        self._ends: list[Ended] = []
        self.over = ""
        """Why there is no further work although there would be some; empty where there would be none."""
        self._lock = threading.Lock()
        """Of `_ends`, which rollouts add to."""

    def next_work(self) -> Callable[[], Ended] | None:
        """The next rollout, ready to be carried out; None where none is to be started now.

        Unfinished ones of earlier processes come first.
        """
        self.over = ""
        pasts = self._pasts.of(self._begun)
        start = None if self._unfinished else self._strategy.next_start(pasts)
        if start is None and not self._unfinished:
            return None
        self.over = self._hindrance(pasts)
        if self.over:
            return None
        if start is None:
            return self._go_on(self._unfinished.popleft())
        return self._begin(start, f"rollout-{len(pasts) + 1}")

    def _hindrance(self, pasts: Sequence[Past]) -> str:
        """What has happened that forbids further work; empty for nothing."""
        with self._lock:
            last = self._ends[-MOST_FAULTS:]
        if self._interruption.stopping.is_set() or any(end.reason is EndReason.INTERRUPTED for end in last):
            return "the run was interrupted"
        if any(end.reason is EndReason.QUOTA_EXHAUSTED for end in last):
            return "the account at the model's server has nothing left"
        if len(last) == MOST_FAULTS and all(end.culprit in _FAULTS for end in last):
            return f"{MOST_FAULTS} rollouts in a row were ended by a fault"
        if not self._unfinished and is_near(pasts, self._floor_ns):
            return f"the best candidate reaches {NEAR:.0%} of what the floor allows"
        try:
            self._budget.check()
        except EndRollout as end:
            return end.message
        return ""

    def _begin(self, start: Start, name: str) -> Callable[[], Ended]:
        plan, tools = self._plan, self._tools(name, (parent.candidate for parent in start.parents))
        started = RolloutStarted(
            turn=0,
            rollout=name,
            task=plan.task.name,
            target=plan.target,
            model=plan.choice.name,
            limits=plan.limits,
            system_prompt=system_prompt(self._briefing, plan.limits),
            opening=opening(start),
            origin=start.origin,
            tools=tuple(tools.definitions()),
            briefing=self._briefing,
        )
        self._begun.append(started)
        return self._work(
            Rollout(
                self._run,
                started,
                self._client(),
                tools,
                Budget(plan.limits, plan.choice.prices, run=self._budget),
                self._watch(name),
                stopping=self._interruption.stopping,
                context_tokens=self._context_tokens,
            )
        )

    def _go_on(self, name: str) -> Callable[[], Ended]:
        events = self._run.events(name)
        first = started_event(events)
        if first.rollout != name:
            raise RunFormatError(
                f"The transcript {self._run.transcript(name)} is that of {first.rollout[:80]!r}. Give its folder the "
                "name that it had, or take it away."
            )
        origin = first.origin
        before = spending_of(events)
        return self._work(
            resumed(
                self._run,
                events,
                self._client(),
                self._tools(name, () if origin is None else origin.parents),
                Budget(self._plan.limits, self._plan.choice.prices, run=self._budget, before=before),
                self._watch(name),
                stopping=self._interruption.stopping,
                context_tokens=self._context_tokens,
            )
        )

    def _tools(self, name: str, parents: Iterable[str]) -> "Tools":
        """A rollout's tools, which know the candidates of its opening, the first of which is the latest."""
        tools = Toolset(self._make_tools(), lambda: self._run.events(name))
        for parent in reversed(tuple(parents)):
            tools.remember(self._run.candidate_text(parent))
        return tools

    def _client(self) -> ModelClient:
        client = self._plan.choice.make_client()
        # Signals reach the main thread, so one that works there needs no help; without a server nobody waits.
        alone = self._plan.strategy.parallel == 1 or self._plan.choice.options is None
        return client if alone else InterruptibleClient(client, self._interruption)

    def _work(self, rollout: Rollout) -> Callable[[], Ended]:
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
