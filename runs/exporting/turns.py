"""A transcript as turns: each reply with the answers to its calls, and what was said between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.events import Event, Imported, ModelReplied, Nudged, ToolReturned, Usage


@dataclass(frozen=True)
class Turn:
    """One reply and the answers to its calls, in the order in which they came."""

    reply: ModelReplied
    results: tuple[ToolReturned, ...]


Said = Imported | Nudged
"""What stands between turns: parts of an imported file, and what the harness told the model."""


def parts_of(events: Sequence[Event]) -> Iterator[Turn | Said]:
    """The turns of a transcript, and what was said between them; within a turn it comes after the turn's answers."""
    reply: ModelReplied | None = None
    results: list[ToolReturned] = []
    between: list[Said] = []
    for event in events:
        if isinstance(event, ModelReplied):
            yield from _closed(reply, results, between)
            reply, results, between = event, [], []
        elif isinstance(event, ToolReturned):
            results.append(event)
        elif isinstance(event, Imported | Nudged):
            between.append(event)
    yield from _closed(reply, results, between)


def counted(usage: Usage | None) -> Usage | None:
    """The tokens of a reply; None where the server did not count: no request is made of no tokens."""
    return usage if usage is not None and usage.input_tokens else None


def _closed(
    reply: ModelReplied | None, results: Sequence[ToolReturned], between: Sequence[Said]
) -> Iterator[Turn | Said]:
    if reply is not None:
        yield Turn(reply, tuple(results))
    yield from between
