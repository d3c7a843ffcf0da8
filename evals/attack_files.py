"""The files of the attack suite: what each tries, which verdict it must get, and the task it is written for.

A file is a candidate. Its docstring says the rest: the first line what it tries, then fields, one a paragraph's line:

    Expected: incorrect, stale_output (the allocator's luck decides which call shows it)
    Seen: where such a thing was seen; may go on over several lines
    Time: at least 20 ms
    Speedup: below 1
    Task: causal_silu

Several verdicts need the reason in brackets. `Time` and `Speedup` are for candidates that lie about time: they bound
what may be reported where the verdict is `correct`. `Task` names a problem file in tests/attacks/tasks.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.errors import UsageError
from tasks.target import Target
from tools.verdict import Verdict

_TESTS = Path(__file__).resolve().parents[1] / "tests"
_TASKS = _TESTS / "attacks" / "tasks"
_NAMES = "Expected|Seen|Time|Speedup|Task"
_FIELD = re.compile(rf"^({_NAMES}): *(.*(?:\n(?!(?:{_NAMES}):)\S.*)*)", re.MULTILINE)
_EXPECTED = re.compile(r"([a-z_]+(?:, [a-z_]+)*)(?: \((.+)\))?", re.DOTALL)

Kind = Literal["attack", "honest"]
_FOLDERS: dict[Kind, str] = {"attack": "attacks", "honest": "honest"}


@dataclass(frozen=True)
class AttackFile:
    """One candidate of the suite."""

    path: Path
    kind: Kind
    tries: str
    """The first line of its docstring."""
    expected: tuple[Verdict, ...]
    why_several: str
    """Why luck decides between several verdicts; empty where there is one."""
    seen: str
    """Where such a thing was seen; may be empty for an honest candidate."""
    least_ms: float | None
    """No call is faster than this, whatever the candidate says."""
    speedup_below: float | None
    task: Path
    text: str

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.path.stem


def attack_files(target: Target, names: Sequence[str] = ()) -> tuple[AttackFile, ...]:
    """The suite's candidates for a target, those of one task together; only the named ones where there are names.

    Raises:
        UsageError: there is no suite here, a name is not in it, or a file's docstring does not say what it must.
    """
    if not _TASKS.is_dir():
        raise UsageError(f"{_TASKS} does not exist: the attack suite ships with the checkout; run the command there")
    found = [
        read_attack(path, kind)
        for kind, folder in _FOLDERS.items()
        for path in sorted((_TESTS / folder / target.value).glob("*.py"))
    ]
    known = {file.name for file in found}
    if unknown := sorted(set(names) - known):
        raise UsageError(f"no attack for {target} is named {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    chosen = [file for file in found if not names or file.name in names]
    return tuple(sorted(chosen, key=lambda file: (file.task, file.kind, file.name)))


def read_attack(path: Path, kind: Kind) -> AttackFile:
    """Read one file; raises `UsageError` where its docstring does not say what it must."""
    text = path.read_bytes().decode("utf-8")
    try:
        docstring = ast.get_docstring(ast.parse(text)) or ""
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path}: no Python: {error}; correct the file") from error
    fields = {name: value.strip() for name, value in _FIELD.findall(docstring)}
    missing = [name for name in ("Expected", "Task") if not fields.get(name)]
    if kind == "attack" and not fields.get("Seen"):
        missing.append("Seen")
    if missing:
        raise UsageError(f"{path}: the docstring has no line `{missing[0]}: ...`; add it")
    expected, why = _expected(fields["Expected"], path)
    task = _TASKS / f"{fields['Task']}.py"
    if not task.is_file():
        raise UsageError(f"{path}: Task names {fields['Task']!r}, but there is no {task}; correct the name")
    seen = " ".join(fields.get("Seen", "").split())
    return AttackFile(
        path=path,
        kind=kind,
        tries=docstring.partition("\n")[0],
        expected=expected,
        why_several=why,
        seen=seen,
        least_ms=_number(fields, "Time", r"at least (\d+(?:\.\d+)?) ms", path),
        speedup_below=_number(fields, "Speedup", r"below (\d+(?:\.\d+)?)", path),
        task=task,
        text=text,
    )


def _number(fields: dict[str, str], name: str, form: str, path: Path) -> float | None:
    if name not in fields:
        return None
    matched = re.fullmatch(form, fields[name])
    if matched is None:
        raise UsageError(f"{path}: `{name}: {fields[name]}` is not of the form {form}; correct it")
    return float(matched[1])


def _expected(field: str, path: Path) -> tuple[tuple[Verdict, ...], str]:
    matched = _EXPECTED.fullmatch(field)
    known = {verdict.value for verdict in Verdict}
    names = matched[1].split(", ") if matched else []
    if matched is None or not known.issuperset(names):
        raise UsageError(f"{path}: `Expected: {field}` names no verdicts; write one of {', '.join(sorted(known))}")
    why = " ".join((matched[2] or "").split())
    if len(names) > 1 and not why:
        raise UsageError(f"{path}: several verdicts are expected; say in brackets behind them why luck decides")
    return tuple(Verdict(name) for name in names), why
