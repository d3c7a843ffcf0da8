"""What a rollout has spent, from its transcript alone: of a killed one, too, and never for history that was copied."""

from collections.abc import Sequence
from datetime import UTC, datetime

from runs.config import Spending
from runs.events import BudgetSpent, Event, ModelReplied, Resumed, Retried, ToolReturned


def spending_of(events: Sequence[Event]) -> Spending:
    """The spending that a transcript shows. The seconds are those of work, without the time between kill and resume."""
    own = [event for event in events if not event.copied]
    replies = [event for event in own if isinstance(event, ModelReplied)]
    # An imported file need not say what a reply took.
    usages = [reply.usage for reply in replies if reply.usage is not None]
    costs = [reply.cost_usd for reply in replies if reply.cost_usd is not None]
    return Spending(
        turns=len(replies),
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        seconds=_seconds(own),
        dollars=sum(costs) if len(costs) == len(replies) and replies else None,
        gpu_seconds=sum(event.reply.device_seconds for event in own if isinstance(event, ToolReturned)),
    )


def seconds_since(event: Event) -> float:
    """How long ago an event was written, by the machine's clock; 0 where that was set back meanwhile, or not noted."""
    return 0.0 if event.time is None else max(0.0, (datetime.now(UTC) - event.time).total_seconds())


def _seconds(events: Sequence[Event]) -> float:
    """As last counted, and what was timed since. Times of events do not count: the machine's clock may have jumped."""
    seconds = waited = 0.0
    for event in events:
        match event:
            case BudgetSpent() | Resumed():
                seconds, waited = event.spent.seconds, 0.0
            case ModelReplied():
                # Its seconds hold those of the attempts before.
                seconds, waited = seconds + (event.seconds or 0.0), 0.0
            case ToolReturned():
                seconds += event.seconds or 0.0
            case Retried():
                waited += event.wait_s
            case _:
                pass
    return seconds + waited
