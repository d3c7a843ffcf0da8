"""A transcript rendered for reading: the whole conversation, then the table of turns."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from runs.arguments import parsed_arguments
from runs.config import RunConfig
from runs.events import (
    BudgetSpent,
    Compacted,
    Ended,
    Event,
    Imported,
    ModelReplied,
    Nudged,
    Resumed,
    Retried,
    RolloutStarted,
    Submitted,
    ToolCall,
    ToolReturned,
)
from runs.summary import call_row, summarize
from runs.terminal import call_line, printable, totals, turns_table, whence


def render_rollout(console: Console, config: RunConfig, events: Sequence[Event]) -> None:
    """Print a rollout from the first event to the totals."""
    summary = summarize(events)
    where = f"{summary.task} on {summary.target or '?'}"
    console.print(Text(printable(f"run {config.id}, {summary.rollout}: {where}, {summary.model}")))
    console.print(Text(printable(f"how it was made: {config.provenance}")))
    if (source := config.forked_from) is not None:
        console.print(Text(f"turns 1 to {source.turn} are copied from {source.run}/{source.rollout}"))
    for event in events:
        render_event(console, event)
    console.print()
    console.print(turns_table(summary.rows, title=f"{summary.task}, {summary.rollout}"))
    console.print(totals(summary))


def render_event(console: Console, event: Event) -> None:
    """Print one event; what a budget event says stands in the totals."""
    match event:
        case RolloutStarted():
            if event.origin is not None:
                _text(console, f"started: {whence(event.origin)}", style="dim")
            if event.system_prompt:
                _block(console, "system prompt", event.system_prompt, style="dim")
            if event.opening:
                _block(console, "opening", event.opening)
        case ModelReplied():
            _reply(console, event)
        case ToolReturned():
            console.print()
            console.print(call_line(call_row(event)), soft_wrap=True)
            _text(console, event.reply.text)
        case Retried():
            _text(
                console, f"\nretry after attempt {event.attempt} in {event.wait_s:.1f} s: {event.error}", style="yellow"
            )
        case Compacted():
            removed = f"\n{event.turns_removed} turns removed from the conversation, {event.turns_kept} kept"
            if event.tokens_before is not None:
                removed += f": about {event.tokens_before} tokens before, {event.tokens_after} after"
            _text(console, removed, style="yellow")
            _text(console, event.note, style="dim")
        case Nudged():
            _block(console, "told", event.text)
        case Resumed():
            spent = f"{event.spent.turns} turns and {event.spent.seconds:.0f} s had been spent"
            _text(console, f"\nresumed after {event.gap_s:.0f} s; {spent}", style="bold")
        case Submitted():
            _text(console, f"\nsubmitted {event.candidate}: {event.evaluation.message}", style="bold")
        case Ended():
            _text(console, f"\nended: {event.reason.value} ({event.message})", style="bold")
        case Imported():
            _imported(console, event)
        case BudgetSpent():
            pass


def _reply(console: Console, event: ModelReplied) -> None:
    heading = f"turn {event.turn}{' (copied)' * event.copied}: {_size(event)}"
    console.print()
    console.print(Rule(heading, align="left", characters="-"))
    if event.reasoning:
        _block(console, "reasoning", event.reasoning, style="dim italic")
    if event.text:
        _block(console, "text", event.text)
    for call in event.tool_calls:
        _call(console, call)
    if event.finish_reason not in ("stop", "tool_calls", None):
        _text(console, f"the reply ended because of: {event.finish_reason}", style="yellow")
    if event.note:
        _text(console, f"note: {event.note}", style="yellow")


def _size(event: ModelReplied) -> str:
    tokens = "tokens unknown" if event.usage is None else f"{event.usage.output_tokens} tokens"
    return tokens if event.seconds is None else f"{tokens} in {event.seconds:.1f} s"


def _imported(console: Console, event: Imported) -> None:
    """Print what stands in the file: as text where it has one, else its raw form."""
    _block(console, f"imported: {printable(event.role or 'other data')}", event.text or json.dumps(event.raw))


def _call(console: Console, call: ToolCall) -> None:
    """Print a call; a candidate's code as code, other arguments as the model wrote them."""
    code, rest = _split_code(call.arguments)
    _text(console, f"\n> {call.name} {rest}", style="bold cyan")
    if not code:
        return
    if console.is_terminal:
        from rich.syntax import Syntax

        console.print(Syntax(printable(code), "python", line_numbers=True, word_wrap=True))
    else:
        _text(console, code)


def _split_code(arguments: str) -> tuple[str, str]:
    """The candidate's code among the arguments, if any, and the other arguments."""
    parsed = parsed_arguments(arguments) or {}
    code = parsed.get("kernel_code")
    if not isinstance(code, str):
        return "", arguments
    rest = {name: value for name, value in parsed.items() if name != "kernel_code"}
    return code, json.dumps(rest) if rest else ""


def _block(console: Console, title: str, text: str, style: str = "") -> None:
    _text(console, f"\n[{title}]", style="bold")
    _text(console, text, style=style)


def _text(console: Console, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style=style), soft_wrap=True)
