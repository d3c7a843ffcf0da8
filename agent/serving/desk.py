"""The rollouts of a server: each client session has one at a time, which is a run of its own on the disk."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

from agent.budget import Budget
from agent.choice import Choice
from agent.loop import Rollout
from agent.prompt import phrase, system_prompt
from agent.serving.bench import Bench
from agent.serving.caller import Caller
from agent.session import Plan, create, lasting_argument
from agent.toolset import Toolset
from runs.config import Driver, Limits
from runs.events import RolloutStarted
from runs.origin import Origin, StrategyConfig
from runs.store import RunDirectory
from runs.strategy_name import StrategyName
from tasks.errors import KernelwrightError, UsageError
from tasks.loader import Task, all_tasks, find_task
from tasks.spec import Target

ROLLOUT = "rollout-1"
STOPPED = "The server was stopped."
DISCONNECTED = "The client disconnected."
BEGAN_ANEW = "The client began another rollout."
ENDING_S = 5.0
"""How long the server waits for a rollout to write its end."""


@dataclass(frozen=True)
class Seat:
    """A rollout that a client drives."""

    task: Task
    caller: Caller
    run: RunDirectory
    told: str
    """What the client is told to do."""
    thread: threading.Thread = field(repr=False)

    @property
    def transcript(self) -> Path:
        """Where everything is written down."""
        return self.run.transcript(ROLLOUT)


class Desk:
    """Begins and ends rollouts; for any thread."""

    def __init__(self, bench: Bench, root: Path, only: Task | None = None) -> None:
        """Runs are kept below `root`; without an `only` task, clients choose among those that ship with the project."""
        self.only = only
        self._bench = bench
        self._root = root
        self._seats: dict[str | None, Seat] = {}
        self._stopped = ""
        """Why nothing goes on any more; empty while something may."""
        self._beginning = threading.Lock()
        """One rollout is begun at a time."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What clients can work on."""
        return all_tasks() if self.only is None else (self.only,)

    @property
    def target(self) -> Target:
        """Where candidates run."""
        return self._bench.target

    @property
    def doing(self) -> str:
        """What is being evaluated at present, in words."""
        return self._bench.doing

    def seat(self, session: str | None) -> Seat | None:
        """The rollout of a session, whether it goes on or has ended; None before there was one."""
        return self._seats.get(session)

    def begin(self, session: str | None, client: str, asked: str | None, *, anew: bool) -> Seat:
        """Begin a rollout; one that still goes on in this session is ended. May take a minute: baselines are timed.

        Args:
            session: which the client's calls carry; None where there is only one.
            client: the client's name, for the record.
            asked: the task; may be left out where the server has but one.
            anew: False where it is only to be begun if there was none in this session.

        Raises:
            UsageError: there is no such task, or other sessions work on another.
            StoppedError: the server stops.
            KernelwrightError: this machine cannot evaluate the task, or the run cannot be written.
        """
        task = self._task(asked)
        with self._beginning:
            before = self._seats.get(session)
            if before is not None and not anew:
                return before
            self._require_free(session, task)
            if before is not None:
                before.caller.leave(BEGAN_ANEW)
                before.thread.join()
            seat = self._seats[session] = self._seat(task, client)
        if self._stopped:
            # It was begun while all others were told to end.
            seat.caller.leave(self._stopped)
        return seat

    def leave(self, session: str | None) -> None:
        """A client is gone: its rollout ends once the call that is being carried out is answered."""
        seat = self._seats.get(session)
        if seat is not None:
            seat.caller.leave(DISCONNECTED)

    def stop(self, why: str) -> None:
        """Tell all rollouts to end, now, and everybody not to wait any longer."""
        self._stopped = self._stopped or why
        for seat in tuple(self._seats.values()):
            seat.caller.leave(why)
        self._bench.stop(why)

    def close(self) -> bool:
        """See the ends of all rollouts written down, once they are told to end, and end whatever evaluates; False where
        that still goes on, and ends only with this process."""
        for seat in tuple(self._seats.values()):
            seat.thread.join(ENDING_S)
        return self._bench.close()

    def _task(self, asked: str | None) -> Task:
        names = [task.name for task in self.tasks]
        if self.only is not None and asked in (None, self.only.name):
            return self.only
        if asked is None:
            raise UsageError(f"name a task: {', '.join(names)}.")
        # Not a path: a client must not have this machine execute any file.
        if asked not in names:
            raise UsageError(f"there is no task {asked!r} here, but {', '.join(names)}.")
        return find_task(asked)

    def _require_free(self, session: str | None, task: Task) -> None:
        for other, seat in self._seats.items():
            if other != session and not seat.caller.is_over and seat.task != task:
                raise UsageError(
                    f"another client of this server works on {seat.task.name}, and one task is served at a time. "
                    "Take the same task, wait, or start a server of your own: servers share the machine by themselves."
                )

    def _seat(self, task: Task, client: str) -> Seat:
        place = self._bench.work_on(task)
        caller = Caller(client)
        plan = Plan(
            task=task,
            task_argument=lasting_argument(task),
            target=self._bench.target,
            choice=Choice(name=client, make_client=lambda: caller, driver=Driver.CLIENT),
            strategy=StrategyConfig(name=StrategyName.SINGLE, rollouts=1),
            limits=Limits(),
            budget=Limits(),
            root=self._root,
            note=f"Made by `kernelwright serve`: the calls are those of {client}, the results are the tools'.",
        )
        run = create(plan, place.briefing)
        tools = Toolset(self._bench.tools(place.make_tools()), lambda: run.events(ROLLOUT))
        started = RolloutStarted(
            turn=0,
            rollout=ROLLOUT,
            task=task.name,
            target=plan.target,
            model=client,
            limits=plan.limits,
            system_prompt=system_prompt(place.briefing, plan.limits),
            opening=phrase("opening"),
            origin=Origin(strategy=StrategyName.SINGLE),
            tools=tuple(tools.definitions()),
            briefing=place.briefing,
        )
        rollout = Rollout(run, started, caller, tools, Budget(plan.limits, None), caller.see)
        thread = threading.Thread(target=_carry_out, args=(rollout, caller), name="rollout", daemon=True)
        thread.start()
        return Seat(task, caller, run, f"{started.system_prompt}\n\n{started.opening}", thread)


def _carry_out(rollout: Rollout, caller: Caller) -> None:
    try:
        rollout.run()
    except KernelwrightError as error:
        caller.fail(str(error))
    except Exception as error:
        caller.fail(f"{type(error).__name__}: {error}")
        raise
