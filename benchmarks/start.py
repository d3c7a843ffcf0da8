"""How long a command takes before it does anything, and how long the list of many runs takes.

    python benchmarks/start.py [TRANSCRIPTS] [REPEATS]

Each command is a process of its own, in turns with the others, after one round that is not counted: what is measured
is a start with the files in memory. CPU seconds stand beside wall time, because they depend less on what else the
machine does. The transcripts (10,000 by default, each of a run of its own) are written to a temporary folder: a
shipped run's first events, its submission and its end; one in a hundred is torn, foreign or was killed.
"""

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from runs.config import RunConfig
from runs.find import list_runs
from runs.places import RECORDED
from runs.store import RunDirectory

ROOT = Path(__file__).resolve().parents[1]
FIRST_EVENTS_BYTES = 10_000


class Start(NamedTuple):
    """One process."""

    wall_s: float
    cpu_s: float


def started(arguments: list[str]) -> Start:
    """Run the command line once."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(ROOT / "kernelwright.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout
    return Start(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def generate(root: Path, transcripts: int) -> None:
    """Write runs with so many transcripts in all."""
    shipped = list_runs(RECORDED)[0]
    config = shipped.config()
    whole = b"".join(_lines(shipped))
    for number in range(transcripts):
        run = RunDirectory(root / f"task_{number % 7}" / f"20260101-{number:06d}-abcdef")
        run.candidates.mkdir(parents=True)
        (run.path / "run.json").write_text(_numbered(config, number, run).model_dump_json(indent=2))
        path = run.transcript("rollout-1")
        path.parent.mkdir()
        path.write_bytes(_spoiled(whole, number))


def _lines(run: RunDirectory) -> Iterator[bytes]:
    lines = run.transcript("rollout-1").read_bytes().splitlines(keepends=True)
    yield lines[0]
    taken = 0
    for line in lines[1:-3]:
        taken += len(line)
        if taken > FIRST_EVENTS_BYTES:
            break
        yield line
    yield from lines[-3:]


def _numbered(config: RunConfig, number: int, run: RunDirectory) -> RunConfig:
    created = config.created + timedelta(seconds=number)
    return config.model_copy(update={"id": run.id, "created": created, "task": run.path.parent.name})


def _spoiled(whole: bytes, number: int) -> bytes:
    match number % 300:
        case 99:
            return whole[: -len(whole) // 3]
        case 199:
            return b"not a transcript\n" * 100
        case 299:
            return b"".join(whole.splitlines(keepends=True)[:-1])
        case _:
            return whole


def main(transcripts: int, repeats: int) -> None:
    """Measure, and print a table in Markdown."""
    run = str(list_runs(RECORDED)[0].path)
    commands = [["--help"], ["--version"], ["tasks"], ["show"], ["show", run], ["scores", run], ["cache"]]
    commands += [[command, "--help"] for command in ("run", "replay", "score")]
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), transcripts)
        commands += [["show", folder], ["show", folder, "--json"]]
        measured: list[list[Start]] = [[] for _ in commands]
        for repeat in range(repeats + 1):
            for place, command in enumerate(commands):
                start = started(command)
                if repeat:
                    measured[place].append(start)
        names = [" ".join(command).replace(folder, f"({transcripts:,} transcripts)") for command in commands]
    packages = ", ".join(f"{name} {version(name)}" for name in ("pydantic", "typer", "rich"))
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; ", end=""
    )
    print(f"Python {platform.python_version()}, {packages}; {repeats} starts each\n")
    print("| command | median s | largest s | median CPU s |\n|---|---|---|---|")
    for name, starts in zip(names, measured, strict=True):
        walls = [start.wall_s for start in starts]
        cpu = statistics.median(start.cpu_s for start in starts)
        shown = name.replace(run, "RUN")
        print(f"| {shown} | {statistics.median(walls):.2f} | {max(walls):.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(given[0] if given else 10_000, given[1] if len(given) > 1 else 10)
