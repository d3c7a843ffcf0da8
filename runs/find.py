"""Finding a run on disk by its path, its id, or an unambiguous beginning of either."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runs.places import LOCAL, RECORDED
from runs.store import CONFIG_NAME, TRANSCRIPT_NAME, RunDirectory
from tasks.errors import UsageError

SHOWN_AT_MOST = 20


@dataclass(frozen=True)
class Found:
    """A run, and its rollouts that were asked for."""

    run: RunDirectory
    rollouts: tuple[str, ...]


def find_run(asked: str, roots: Sequence[Path] = (LOCAL, RECORDED)) -> Found:
    """The run meant by a path, by `<id>` or by `<task>/<id>`; a unique beginning will do. Earlier roots win.

    A path may lead to the run, to one of its rollouts, or to a rollout's transcript. Raises UsageError with a list
    of what exists.
    """
    if found := _by_path(Path(asked)):
        return found
    for root in roots:
        runs = list_runs(root)
        exact = [run for run in runs if asked in (run.id, _name(run))]
        matches = exact or [run for run in runs if run.id.startswith(asked) or _name(run).startswith(asked)]
        if len(matches) == 1:
            return _whole(matches[0])
        if matches:
            raise UsageError(f"{asked!r} could be any of these runs; write more of it:\n{_listing(matches)}")
    existing = [run for root in roots for run in list_runs(root)]
    if not existing:
        raise UsageError(f"There is no run {asked!r}: neither a path nor, in {_places(roots)}, any run at all.")
    raise UsageError(f"There is no run {asked!r}. These exist:\n{_listing(existing)}")


def list_runs(root: Path) -> list[RunDirectory]:
    """All runs below a root, newest last."""
    return sorted((RunDirectory(path.parent) for path in root.glob(f"*/*/{CONFIG_NAME}")), key=lambda run: run.id)


def _by_path(path: Path) -> Found | None:
    if (path / CONFIG_NAME).is_file():
        return _whole(RunDirectory(path.resolve()))
    if path.is_file() and path.name == TRANSCRIPT_NAME:
        path = path.parent
    if (path / TRANSCRIPT_NAME).is_file():
        path = path.resolve()
        return Found(RunDirectory(path.parent), (path.name,))
    return None


def _whole(run: RunDirectory) -> Found:
    rollouts = run.rollouts()
    if not rollouts:
        raise UsageError(f"The run {run.path} holds no transcript: it was stopped before its first rollout.")
    return Found(run, rollouts)


def _name(run: RunDirectory) -> str:
    return f"{run.path.parent.name}/{run.id}"


def _listing(runs: Sequence[RunDirectory]) -> str:
    shown = [f"  {_name(run)}" for run in runs[-SHOWN_AT_MOST:]]
    hidden = len(runs) - len(shown)
    return "\n".join([f"  ({hidden} older ones)", *shown] if hidden else shown)


def _places(roots: Sequence[Path]) -> str:
    return " or ".join(str(root) for root in roots)
