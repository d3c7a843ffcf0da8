"""What `cache` prints: what is kept between processes, how much that is, the bound, and where."""

import time

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.record import Record
from tools.cache import LIMIT_VARIABLE, cache_limit_bytes, cache_root
from tools.cache_tending import MANY, WHOLE, Dropped, Entry, Part, clear, entries, leftovers

_PLAIN_WIDTH = 120
_CONTENTS: dict[Part, str] = {
    "builds": "extensions that candidates built",
    "light": "light headers in place of PyTorch's",
    "precompiled": "precompiled headers of PyTorch",
    "inductor": "PyTorch's own: torch.compile",
    "triton": "PyTorch's own: Triton",
}


class CachePart(Record):
    """One part of the cache."""

    part: Part
    entries: int
    in_use: int
    """How many of them a process uses now."""
    size_bytes: int
    least_recently_used_s: float | None
    """How long ago the entry was used that goes first; None where there is none."""


class CacheReport(Record):
    """The cache as it is now."""

    root: str
    limit_bytes: int
    size_bytes: int
    """Of all parts."""
    leftovers: int
    """Folders of dead processes, which go when the cache is tended next."""
    parts: tuple[CachePart, ...]
    dropped_entries: int = 0
    """What `--clear` took away."""
    dropped_bytes: int = 0


def report_cache(emptying: bool, as_json: bool) -> None:
    """Empty the cache if that is asked for, and print what is kept then."""
    root, limit_bytes = cache_root(), cache_limit_bytes()
    dropped = clear(root) if emptying else Dropped(0, 0)
    kept = entries(root)
    report = CacheReport(
        root=str(root),
        limit_bytes=limit_bytes,
        size_bytes=sum(entry.size_bytes for entry in kept),
        leftovers=len(leftovers(root)),
        parts=tuple(_part(part, [entry for entry in kept if entry.part == part]) for part in (*MANY, *WHOLE)),
        dropped_entries=dropped.entries,
        dropped_bytes=dropped.size_bytes,
    )
    if as_json:
        typer.echo(report.model_dump_json())
    else:
        _print(report, emptying)


def _part(part: Part, kept: list[Entry]) -> CachePart:
    return CachePart(
        part=part,
        entries=len(kept),
        in_use=sum(entry.in_use for entry in kept),
        size_bytes=sum(entry.size_bytes for entry in kept),
        least_recently_used_s=max((time.time() - entry.last_used for entry in kept), default=None),
    )


def _print(report: CacheReport, emptied: bool) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    if emptied:
        console.print(Text(f"{report.dropped_entries} entries dropped, {_size(report.dropped_bytes)}"))
    table = Table("part", "what it holds")
    for name in ("entries", "in use", "size", "first to go, last used"):
        table.add_column(name, justify="right")
    for part in report.parts:
        table.add_row(
            part.part,
            Text(_CONTENTS[part.part]),
            str(part.entries),
            str(part.in_use),
            _size(part.size_bytes),
            "" if part.least_recently_used_s is None else f"{_age(part.least_recently_used_s)} ago",
        )
    console.print(table)
    console.print(
        Text(f"{_size(report.size_bytes)} of at most {_size(report.limit_bytes)} ({LIMIT_VARIABLE}), in {report.root}"),
        soft_wrap=True,
    )
    if report.leftovers:
        console.print(f"{report.leftovers} folders of dead processes, which go when the cache is tended next")
    if emptied and any(part.in_use for part in report.parts):
        console.print("what is in use stays: a process holds it, or a compiler was given it in the last 10 minutes")


def _size(size_bytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes:.0f} bytes"


def _age(seconds: float) -> str:
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
