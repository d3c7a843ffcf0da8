"""A transcript as turns: each reply with the answers to its calls, and what an imported file said between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.events import Event, Imported, ModelReplied, ToolReturned, Usage


@dataclass(frozen=True)
class Turn:
    """One reply and the answers to its calls, in the order in which they came."""

    reply: ModelReplied
    results: tuple[ToolReturned, ...]


def parts_of(events: Sequence[Event]) -> Iterator[Turn | Imported]:
    """The turns of a transcript, and imported parts where they stood, or after the turn within which they stood."""
    reply: ModelReplied | None = None
    results: list[ToolReturned] = []
    between: list[Imported] = []
    for event in events:
        if isinstance(event, ModelReplied):
            yield from _closed(reply, results, between)
            reply, results, between = event, [], []
        elif isinstance(event, ToolReturned):
            results.append(event)
        elif isinstance(event, Imported):
            between.append(event)
    yield from _closed(reply, results, between)


def counted(usage: Usage | None) -> Usage | None:
    """The tokens of a reply; None where the server did not count: no request is made of no tokens."""
    return usage if usage is not None and usage.input_tokens else None


def _closed(
    reply: ModelReplied | None, results: Sequence[ToolReturned], between: Sequence[Imported]
) -> Iterator[Turn | Imported]:
    if reply is not None:
        yield Turn(reply, tuple(results))
    yield from between
