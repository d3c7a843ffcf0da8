"""Compaction: the oldest turns leave the conversation, and a note stands in their place.

The note holds what a model must not lose: the best candidate's whole text, every attempt with what came of it, and the
last profile. The turns themselves stay in the transcript.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from agent.ledger import Attempt, Ledger
from agent.prompt import compaction_note
from agent.state import RolloutState
from agent.window import OVERFLOW_SHARE, Window
from runs.events import Compacted

NOTE_SHARE = 0.25
"""Of the model's context, that the list of attempts may take before its oldest wrong ones are only counted."""


def after_overflow(state: RolloutState, text_of: Callable[[str], str]) -> Compacted | None:
    """Make room after the server refused the conversation as too long; None where nothing is left to remove.

    The last turn goes only when it is the only one: what it brought is in the note. `text_of` gives the text of a
    candidate by its id.
    """
    window, turns = state.window, state.conversation.turns
    window.learn(round(OVERFLOW_SHARE * window.tokens(state.conversation.size_bytes)))
    made = _compacted(state, text_of, max(1, turns - 1)) if turns else None
    return None if made is None else made.model_copy(update={"limit_tokens": window.limit_tokens})


def before_overflow(state: RolloutState, text_of: Callable[[str], str]) -> Compacted | None:
    """Make room before the conversation is too long; None where it is not, or only the last turn is left."""
    window, turns = state.window, state.conversation.turns
    if turns < 2 or not window.is_full(state.conversation.size_bytes):
        return None
    return _compacted(state, text_of, turns - 1)


def _compacted(state: RolloutState, text_of: Callable[[str], str], most: int) -> Compacted:
    """Remove as few turns as make room, but at the most so many."""
    conversation, window = state.conversation, state.window
    best = state.ledger.best
    note = _note(state.ledger, "" if best is None else text_of(best.candidate), window)
    fitting = (turns for turns in range(1, most) if window.fits_well(conversation.size_without(turns, note)))
    removed = next(fitting, most)
    return Compacted(
        turn=state.turn,
        turns_removed=removed,
        turns_kept=conversation.turns - removed,
        tokens_before=window.tokens(conversation.size_bytes),
        tokens_after=window.tokens(conversation.size_without(removed, note)),
        note=note,
    )


def _note(ledger: Ledger, best_text: str, window: Window) -> str:
    """The note with all attempts, or with as many as a small context has room for."""
    attempts: Sequence[Attempt] = ledger.attempts
    while True:
        left_out = Counter(each.outcome.verdict for each in ledger.attempts[: len(ledger.attempts) - len(attempts)])
        note = compaction_note(attempts, left_out, ledger.best, best_text, ledger.last_profile)
        listed = sum(len(each.idea) + _LINE_BYTES for each in attempts)
        if window.limit_tokens is None or window.tokens(listed) <= NOTE_SHARE * window.limit_tokens:
            return note
        attempts = attempts[(len(attempts) + 1) // 2 :]


_LINE_BYTES = 80
"""Of an attempt's line in the note, without its idea."""
