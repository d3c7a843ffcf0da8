"""Going on with a rollout from its transcript: after a kill, an interruption, or an end that need not be the last."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent.budget import Budget
from agent.control import EndRollout
from agent.loop import Rollout
from agent.model import ModelClient
from agent.recorded import RecordedModel
from runs.accounting import spending_of
from runs.config import Limits, Spending
from runs.events import BudgetSpent, Culprit, Event, ModelReplied, ToolReturned
from runs.store import RunDirectory
from runs.summary import end_of, started

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools

_FINAL = (Culprit.NOBODY, Culprit.MODEL)
"""Whose ends are ends for good: the model submitted, stopped or was stuck, or a recording was over."""


def can_go_on(events: Sequence[Event], limits: Limits) -> bool:
    """Whether a rollout is unfinished: killed, stopped, ended by a fault, or by a limit that is no longer reached."""
    ended = end_of(events)
    if ended is None:
        return True
    if ended.culprit in _FINAL:
        return False
    try:
        Budget(limits, None, before=spending_of(events)).check()
    except EndRollout:
        return False
    return True


def resumed(
    run: RunDirectory,
    events: Sequence[Event],
    client: ModelClient,
    tools: "Tools",
    budget: Budget,
    watch: Callable[[Event], None],
    *,
    stopping: threading.Event | None = None,
    context_tokens: int | None = None,
) -> Rollout:
    """A rollout that goes on where its transcript ends.

    Calls whose results are on the disk are not carried out again, and replies that are there are not asked for again;
    a reply that came but was not written yet when the process was killed is lost, and asked for again.

    Args:
        run: which holds the rollout.
        events: all of its transcript, as read.
        client: a new one.
        tools: new ones; they are told the candidates of the transcript.
        budget: one that began with `before=spending_of(events)`.
        watch: as of `Rollout`.
        stopping: as of `Rollout`.
        context_tokens: as of `Rollout`.

    Raises:
        RunFormatError: a candidate's text is missing.
    """
    for candidate in compiled(events):
        tools.remember(run.candidate_text(candidate))
    if isinstance(client, RecordedModel):
        client.skip(sum(isinstance(event, ModelReplied) for event in events))
    return Rollout(
        run,
        started(events),
        client,
        tools,
        budget,
        watch,
        stopping=stopping,
        history=events,
        context_tokens=context_tokens,
    )


def spending_of_run(rollouts: Sequence[Sequence[Event]]) -> Spending:
    """What the rollouts of a run have spent together; the seconds are those of the run, not of each added up."""
    each = [spending_of(events) for events in rollouts]
    runs = [event.run for events in rollouts for event in events if isinstance(event, BudgetSpent) and not event.copied]
    costs = [spent.dollars for spent in each if spent.turns]
    return Spending(
        turns=sum(spent.turns for spent in each),
        input_tokens=sum(spent.input_tokens for spent in each),
        output_tokens=sum(spent.output_tokens for spent in each),
        seconds=max((spent.seconds for spent in (*runs, *each) if spent is not None), default=0.0),
        dollars=None if None in costs else sum(cost for cost in costs if cost is not None),
        gpu_seconds=sum(spent.gpu_seconds for spent in each),
    )


def compiled(events: Sequence[Event]) -> list[str]:
    """The ids of the candidates of a transcript, in the order in which each was compiled last."""
    compiled = (event for event in events if isinstance(event, ToolReturned) and event.tool == "compile_kernel")
    ids = [event.reply.candidate for event in compiled if event.reply.candidate is not None]
    return list(reversed(dict.fromkeys(reversed(ids))))
