"""What `export` does: writes a run's rollouts in the form that is asked for, or sends them."""

import importlib.util
from pathlib import Path
from typing import Literal

import typer

from runs.exporting.atif import trajectory_text
from runs.exporting.chat import chat_line
from runs.find import Found, find_run
from tasks.errors import UnavailableError, UsageError

_EXTRA = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def export_run(
    asked: str, form: Literal["atif", "chat", "otlp"], out: Path | None, endpoint: str | None, *, content: bool
) -> None:
    """Export the run that is meant."""
    if form == "otlp" and out is not None:
        raise UsageError("--out is for atif and chat; spans go to --endpoint URL.")
    if form != "otlp" and (endpoint is not None or content):
        raise UsageError("--endpoint and --with-content are for otlp; the other forms go to --out FILE.")
    found = find_run(asked)
    if out is not None and out.resolve().is_relative_to(found.run.path.resolve()):
        raise UsageError(f"{out} lies in the run itself, whose files are never written over. Choose another --out.")
    match form:
        case "atif":
            _write(_atif(found), out)
        case "chat":
            lines = (chat_line(found.run.id, found.run.events(rollout)) for rollout in found.rollouts)
            _write("\n".join(lines), out)
        case "otlp":
            _send(found, endpoint, content=content)


def _atif(found: Found) -> str:
    """The format holds one trajectory a file."""
    if len(found.rollouts) > 1:
        paths = "\n".join(f"  {found.run.path / rollout}" for rollout in found.rollouts)
        raise UsageError(f"An ATIF file holds one rollout, and the run {found.run.id} has several. Name one:\n{paths}")
    return trajectory_text(found.run.config(), found.run.events(found.rollouts[0]))


def _send(found: Found, endpoint: str | None, *, content: bool) -> None:
    if not all(map(_is_installed, _EXTRA)):
        raise UnavailableError("Sending spans needs OpenTelemetry, which is not installed: pip install -e '.[otel]'")
    from runs.exporting.otel_send import send
    from runs.exporting.otel_spans import spans_of

    config = found.run.config()
    spans = [
        span for rollout in found.rollouts for span in spans_of(config, found.run.events(rollout), content=content)
    ]
    send(spans, endpoint)
    typer.echo(f"{len(spans)} spans of {found.run.id} were sent")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _write(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text)
        return
    try:
        out.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out} cannot be written ({error.strerror}). Choose another --out.") from error
