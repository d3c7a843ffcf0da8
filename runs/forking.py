"""Forking: a new run whose one rollout begins with the first turns of a rollout of another."""

from collections.abc import Sequence

from runs.events import Compacted, Event, ModelReplied, Nudged, RolloutStarted, ToolReturned
from runs.store import RunDirectory
from tasks.errors import UsageError
from tools.results import Evaluation

_HISTORY = (ModelReplied, ToolReturned, Nudged, Compacted)
"""What the conversation is made of; what was spent and how it ended belongs to the rollout that is forked."""


def history_up_to(events: Sequence[Event], turn: int) -> tuple[Event, ...]:
    """What was said in the first turns of a rollout, marked as copied; calls that have no result yet stay open.

    Raises:
        UsageError: the rollout has fewer turns, or had handed in its candidate by then.
    """
    turns = [event.turn for event in events if isinstance(event, ModelReplied)]
    last = max(turns, default=0)
    if turn > last:
        raise UsageError(f"The rollout has {last} turns, so it cannot be forked at turn {turn}. Give --at 0 to {last}.")
    history = tuple(event for event in events if isinstance(event, _HISTORY) and event.turn <= turn)
    for event in history:
        if isinstance(event, ToolReturned) and isinstance(event.reply.result, Evaluation):
            raise UsageError(
                f"In turn {event.turn} the rollout handed in a candidate, which ends a conversation. "
                f"Fork it at an earlier turn: --at {event.turn - 1} or less."
            )
    return tuple(event.model_copy(update={"copied": True}) for event in history)


def candidates_of(source: RunDirectory, beginning: RolloutStarted, history: Sequence[Event]) -> dict[str, str]:
    """The texts of the candidates that a beginning names, by their ids; raises RunFormatError where one is missing."""
    answered = (event.reply.candidate for event in history if isinstance(event, ToolReturned))
    parents = beginning.origin.parents if beginning.origin is not None else ()
    return {each: source.candidate_text(each) for each in dict.fromkeys((*parents, *filter(None, answered)))}


def begin_fork(run: RunDirectory, source: RunDirectory, beginning: RolloutStarted, history: Sequence[Event]) -> None:
    """Write the beginning of a fork's transcript, and the candidates that it names, whole or not at all.

    Args:
        run: the new run, which has no such rollout yet.
        source: the run that holds the candidates' texts.
        beginning: the new rollout's first event.
        history: what follows it, of `history_up_to`.

    Raises:
        RunFormatError: a candidate of the source cannot be read.
        StorageError: something cannot be written.
    """
    for candidate, text in candidates_of(source, beginning, history).items():
        run.save_candidate(candidate, text)
    run.write_beginning(beginning.rollout, (beginning, *history))
