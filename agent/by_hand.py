"""What `tool` does: carries out a tool call from a shell, as the next turn of a run that is driven so."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from agent.acting import finish_turn
from agent.asking import ask
from agent.budget import Budget
from agent.choice import Choice
from agent.control import EndRollout
from agent.course import Course
from agent.ends import end_by
from agent.hand_calls import Typed
from agent.model import Message, ModelReply, Patience, ToolDefinition
from agent.prompt import phrase, system_prompt
from agent.resume_command import target_of
from agent.resuming import can_go_on, compiled
from agent.session import Plan, configuration, lasting_argument
from agent.state import RolloutState
from agent.stuck import Repetition
from agent.toolset import Toolset
from runs.accounting import seconds_since, spending_of
from runs.config import Driver, Limits
from runs.events import Culprit, Ended, Event, Resumed, RolloutStarted, ToolCall, ToolReturned
from runs.log import TranscriptLog
from runs.origin import Origin, StrategyConfig
from runs.showing import print_json
from runs.store import CONFIG_NAME, RunDirectory, create_run_at
from runs.strategy_name import StrategyName
from runs.summary import end_of, started
from runs.terminal import printable
from tasks.errors import UsageError
from tasks.loader import Task, find_task
from tasks.spec import Target
from tools.briefing import Briefing
from tools.required_sandbox import RequiredSandbox, require_sandbox
from tools.results import Built, Evaluation, Fault, Refused, ToolReply, ToolResult
from tools.sanitizer_results import Sanitized
from tools.verdict import culprit

BY_HAND = "by hand"
"""What stands in the place of a model's name."""
ROLLOUT = "rollout-1"
_EXITS = {"nobody": 0, "candidate": 1, "machine": 3, "harness": 4}
REFUSED_EXIT = 2


@dataclass(frozen=True)
class _Work:
    """A run on which a call is made."""

    run: RunDirectory
    task: Task
    task_argument: str
    target: Target
    history: tuple[Event, ...]
    """Empty where nothing has happened yet."""

    @property
    def plan(self) -> Plan:
        """What its record says, once it is made."""
        return Plan(
            task=self.task,
            task_argument=self.task_argument,
            target=self.target,
            choice=Choice(name=BY_HAND, make_client=lambda: _Hand(()), driver=Driver.SHELL),
            strategy=StrategyConfig(name=StrategyName.SINGLE, rollouts=1),
            limits=Limits(),
            budget=Limits(),
            root=self.run.path.parent,
            note="Made by `kernelwright tool`: the calls came from a shell, the results are the tools'.",
        )


class _Hand:
    """The typed calls as the replies of a model, one each."""

    name = BY_HAND

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self._calls = list(calls)

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:  # noqa: ARG002
        return ModelReply(text="", tool_calls=(self._calls.pop(0),), finish_reason="tool_calls")


def call_by_hand(
    typed: Typed,
    *,
    run: Path,
    task: str | None,
    target: Target | None,
    as_json: bool,
    require: RequiredSandbox | None,
) -> None:
    """Carry out what was typed, print what the tools say, and end the program with an exit code.

    Args:
        typed: the tool and what it is about.
        run: the run's directory, which is made where it holds no run yet.
        task: needed then; else the run's own.
        target: the same; by default as of `run`.
        as_json: whether to print the results' records in place of words.
        require: the least sandbox, as of `run`.
    """
    typed.require_sense()
    work = _work(RunDirectory(run.resolve()), task, target)
    calls = typed.calls(work.history)
    require_sandbox(require, work.target)
    # Judging needs PyTorch; a wrong name is to be reported without waiting for its import.
    from tools.judge import Judge
    from tools.toolbox import Toolbox

    last: list[ToolReply] = []

    def tell(event: Event) -> None:
        if isinstance(event, ToolReturned) and event.executed:
            last.append(event.reply)
            if as_json:
                print_json("tool_result", event.reply.result, tool=event.tool)
            else:
                typer.echo(printable(event.reply.text))

    with Judge(work.task, work.target) as judge:
        tools = Toolset(Toolbox(judge), lambda: work.run.events(ROLLOUT))
        for candidate in compiled(work.history):
            tools.remember(work.run.candidate_text(candidate))
        beginning = started(work.history) if work.history else _begin(work, judge.briefing(timed=False), tools)
        ended = _take_turns(work, beginning, tools, calls, tell)
    if ended is not None and ended.culprit in (Culprit.MACHINE, Culprit.HARNESS):
        typer.echo(f"kernelwright: {ended.message}", err=True)
        raise typer.Exit(_EXITS[ended.culprit.value])
    raise typer.Exit(exit_code(last[-1].result))


def exit_code(result: ToolResult) -> int:
    """0 where the answer is good, 1 for a candidate's fault, 2 for a call that could not be carried out, 3 where this
    machine cannot answer, 4 for a fault of ours."""
    match result:
        case Refused():
            return REFUSED_EXIT
        case Fault() | Evaluation() | Sanitized():
            return _EXITS[culprit(result.verdict)]
        case _:
            return 0


def _work(run: RunDirectory, task: str | None, target: Target | None) -> _Work:
    # Finding out whether there is a GPU needs PyTorch.
    from tools.targets import default_target

    if not (run.path / CONFIG_NAME).is_file():
        if task is None:
            raise UsageError(f"{run.path} holds no run yet, so say which task it is to be of: --task NAME.")
        found = find_task(task)
        return _Work(run, found, lasting_argument(found), target or default_target(), ())
    config = run.config()
    if config.driver is not Driver.SHELL:
        raise UsageError(
            f"{run.path} is a run of {config.model}; a call from a shell would pass for its own. Name a new directory."
        )
    if task not in (None, config.task, config.task_argument) or target not in (None, config.target):
        raise UsageError(f"{run.path} is a run of {config.task} on {config.target}. Name another directory.")
    history = run.events(ROLLOUT) if ROLLOUT in run.rollouts() else ()
    if history and not can_go_on(history, Limits()):
        ended = end_of(history)
        how = "" if ended is None else f" ({ended.reason.value}: {ended.message})"
        raise UsageError(f"The rollout in {run.path} has ended{how}. Begin another with a new directory and --task.")
    return _Work(run, find_task(config.task_argument), config.task_argument, target_of(config), history)


def _begin(work: _Work, briefing: Briefing, tools: Toolset) -> RolloutStarted:
    if not (work.run.path / CONFIG_NAME).is_file():
        create_run_at(work.run.path, configuration(work.plan, briefing, work.run.id))
    return RolloutStarted(
        turn=0,
        rollout=ROLLOUT,
        task=work.task.name,
        target=work.target,
        model=BY_HAND,
        limits=Limits(),
        system_prompt=system_prompt(briefing, Limits()),
        opening=phrase("opening"),
        origin=Origin(strategy=StrategyName.SINGLE),
        tools=tuple(tools.definitions()),
        briefing=briefing,
    )


def _take_turns(
    work: _Work, beginning: RolloutStarted, tools: Toolset, calls: Sequence[ToolCall], tell: Callable[[Event], None]
) -> Ended | None:
    """One turn a call, until one fails; returns the end of the rollout where there is one, else it stays open."""
    state = RolloutState(beginning)
    for event in work.history[1:]:
        state.see(event)
    # Somebody who types a call again means it.
    state.repetition = Repetition()
    spent = spending_of(work.history)
    budget = Budget(Limits(), None, before=spent)
    with TranscriptLog(work.run.transcript(ROLLOUT), work.history) as log:
        course = Course(work.run, _Hand(calls), tools, budget, tell, threading.Event(), state, log)
        if work.history:
            gap_s = seconds_since(work.history[-1])
            course.record(Resumed(turn=state.turn, spent=spent, limits=Limits(), gap_s=gap_s))
            _close_open_calls(course)
        else:
            course.record(beginning)
        try:
            for _ in calls:
                ask(course)
                finish_turn(course)
                if not isinstance(state.results[-1].reply.result, Built):
                    break
        except Exception as error:
            if log.failed:
                raise
            end = end_by(error)
            ended = course.record(Ended(turn=state.turn, reason=end.reason, message=end.message, culprit=end.culprit))
            if isinstance(error, EndRollout):
                return ended
            raise
    return None


def _close_open_calls(course: Course) -> None:
    """Answer calls whose process was killed before they were: each is to have one result."""
    text = phrase("killed")
    for call in course.state.calls[len(course.state.results) :]:
        reply = ToolReply(text=text, result=Refused(message=text))
        course.record(
            ToolReturned(
                turn=course.state.turn, call_id=call.id, tool=call.name, reply=reply, executed=False, seconds=0.0
            )
        )
