"""What `build.py` measures: candidates of the corpus, rows of results on disk, and the table made of them."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tasks.errors import UsageError
from tasks.record import Record
from tools.candidate import Candidate

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "candidates" / "builds"
COLD_GOAL_S = 4.0
"""What a cold build may take, and the cached one, on 16 cores."""
CACHED_GOAL_S = 0.3
_TASK = re.compile(r"^Task: (\w+)$", re.MULTILINE)


class Setting(Record):
    """Where and when one run of the benchmark began."""

    kind: Literal["setting"] = "setting"
    when: str
    processor: str
    cores: int
    torch: str
    cuda: str
    host_compiler: str
    architecture: str


class Once(Record):
    """What is made once for a machine and flags of the host compiler, with the empty extensions that make it."""

    kind: Literal["once"] = "once"
    flags: str
    """As written in the call of `load_inline`."""
    first_s: float
    again_s: float
    """With what the first build has made; the difference is what is paid once."""
    fallback_s: float
    """Of one that only PyTorch's own headers serve: what those builds make once, and one of them without a kernel."""

    def summary(self) -> str:
        """This as a line."""
        seconds = f"{self.first_s:.1f} s, again {self.again_s:.1f} s, falling back {self.fallback_s:.1f} s"
        return f"an empty extension with {self.flags or 'no flags'}: {seconds}"


class PlainBuild(Record):
    """What one build by PyTorch's `load_inline` came to."""

    seconds: float
    """Wall time within `load_inline`, the import of the library included."""
    libraries: tuple[str, ...] = ()
    error: str = ""
    """Why there is no library; empty where there is one."""


class OwnBuild(Record):
    """One answer of `compile`."""

    whole_s: float
    """Until the answer: the worker, the build, the import and the construction."""
    build_s: float = 0.0
    """Of that, the builds."""
    paths: tuple[str, ...] = ()
    """Which path each extension took."""
    cached: bool = False
    keys: tuple[str, ...] = ()
    error: str = ""


class DeviceCode(Record):
    """What comparing the two arms' functions on the GPU found."""

    functions: int = 0
    """How many the plain library has."""
    differing: tuple[str, ...] = ()
    """Mangled names of those that are not the same in both, or are in one only."""
    error: str = ""
    """Why they were not compared."""

    @property
    def word(self) -> str:
        """This as a cell of the table."""
        return "not compared" if self.error else "differs" if self.differing else "identical"


class Row(Record):
    """All arms of one candidate."""

    kind: Literal["row"] = "row"
    name: str
    task: str
    candidate: str
    """The SHA-256 of its text."""
    cores: int
    plain: PlainBuild | None
    """None where it was not asked for."""
    cold: OwnBuild
    cached: OwnBuild
    code: DeviceCode | None
    """None where one of the arms has no library."""

    @property
    def ratio(self) -> float | None:
        """How many times as long PyTorch takes as ours does cold; None where one of them has no library."""
        if self.plain is None or self.plain.error or self.cold.error:
            return None
        return self.plain.seconds / self.cold.whole_s

    @property
    def cells(self) -> tuple[str, ...]:
        """This row of the table."""
        plain = "" if self.plain is None else "failed" if self.plain.error else f"{self.plain.seconds:.1f}"
        cold = "failed" if self.cold.error else f"{self.cold.whole_s:.1f}"
        cached = "failed" if self.cached.error or not self.cached.cached else f"{self.cached.whole_s:.2f}"
        ratio = "" if self.ratio is None else f"{self.ratio:.1f}"
        code = "" if self.code is None else self.code.word
        return self.name, plain, cold, cached, ratio, " ".join(self.cold.paths), code

    def summary(self) -> str:
        """This row as a line, with what went wrong below it."""
        arms = (self.plain, self.cold, self.cached, self.code)
        problems = [arm.error for arm in arms if arm is not None and arm.error]
        differing = self.code.differing if self.code else ()
        return "\n    ".join(("  ".join(filter(None, self.cells)), *problems, *differing))


_LINE: TypeAdapter[Setting | Once | Row] = TypeAdapter(Annotated[Setting | Once | Row, Field(discriminator="kind")])


@dataclass(frozen=True)
class CorpusCandidate:
    """A file of the corpus."""

    text: str
    task: str

    @cached_property
    def flags(self) -> str:
        """The flags for the host compiler that it gives to `load_inline`, as it writes them."""
        calls = [node for node in ast.walk(ast.parse(self.text)) if isinstance(node, ast.Call)]
        named = [word for call in calls for word in call.keywords if word.arg == "extra_cflags"]
        return ", ".join(f"{word.arg}={ast.unparse(word.value)}" for word in named)


Candidates = Mapping[str, CorpusCandidate]


def chosen_candidates(names: Iterable[str]) -> Candidates:
    """The candidates of these names, or all where none is given.

    Raises:
        UsageError: there is none of that name.
    """
    files = {path.stem: path for path in sorted(CORPUS.glob("*.py"))}
    chosen = list(names) or list(files)
    if unknown := [name for name in chosen if name not in files]:
        raise UsageError(f"no candidate is named {', '.join(unknown)}; there are {', '.join(files)}")
    return {name: _read(files[name]) for name in chosen}


def _read(file: Path) -> CorpusCandidate:
    text = file.read_text(encoding="utf-8")
    task = _TASK.search(ast.get_docstring(ast.parse(text)) or "")
    if task is None:
        raise UsageError(f"{file}: its docstring names no task; add a line such as Task: causal_conv")
    return CorpusCandidate(text, task[1])


def append(file: Path, line: Setting | Once | Row) -> None:
    """Add a line of results."""
    with file.open("a", encoding="utf-8") as out:
        out.write(line.model_dump_json() + "\n")


def read_lines(file: Path) -> tuple[Setting | Once | Row, ...]:
    """All lines of results; none where there is no file yet, and without a last one that was torn."""
    if not file.exists():
        return ()
    whole = [line for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    return tuple(_LINE.validate_json(line) for line in whole)


def read_rows(file: Path) -> tuple[Row, ...]:
    """The latest row of each candidate, by name."""
    rows = {line.name: line for line in read_lines(file) if isinstance(line, Row)}
    return tuple(rows[name] for name in sorted(rows))


def is_done(rows: Iterable[Row], name: str, candidate: CorpusCandidate, *, with_plain: bool) -> bool:
    """Whether the rows hold everything that is wanted of a candidate as it is now."""
    identity = Candidate(candidate.text).id
    return any(
        row.name == name and row.candidate == identity and (row.plain is not None or not with_plain) for row in rows
    )


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table, and what they say together."""
    listed = list(rows)
    head = ("candidate", "plain s", "cold s", "cached s", "plain / cold", "path", "device code")
    lines = [head, ("---",) * len(head), *(row.cells for row in listed)]
    ratios = [row.ratio for row in listed if row.ratio is not None]
    cold = [row.cold.whole_s for row in listed if not row.cold.error]
    cached = [row.cached.whole_s for row in listed if row.cached.cached]
    compared = [row.code for row in listed if row.code is not None and not row.code.error]
    paths = Counter(path for row in listed for path in row.cold.paths)
    says = [f"Paths: {', '.join(f'{path} {count}' for path, count in sorted(paths.items()))}."] if paths else []
    if cold:
        says.append(f"Cold: median {median(cold):.1f} s, {_within(cold, COLD_GOAL_S)}.")
    if cached:
        says.append(f"Cached: median {median(cached):.2f} s, {_within(cached, CACHED_GOAL_S)}.")
    if ratios:
        says.append(f"Plain takes {median(ratios):.1f} times as long in the median, at least {min(ratios):.1f} times.")
    if compared:
        same = sum(not code.differing for code in compared)
        says.append(f"The device code of {same} of {len(compared)} is identical.")
    return "\n".join((*(f"| {' | '.join(line)} |" for line in lines), "", " ".join(says)))


def _within(seconds: list[float], goal: float) -> str:
    return f"{sum(each <= goal for each in seconds)} of {len(seconds)} within {goal:g} s"
