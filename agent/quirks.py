"""The table of quirks: how certain models have to be asked, for any name that fits a pattern."""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field, JsonValue, ValidationError

from runs.config import ModelOptions
from tasks.errors import UsageError
from tasks.record import Record

TABLE = Path(__file__).parent / "quirks.toml"


class _Quirks(Record):
    """The table as a whole."""

    model: tuple[dict[str, JsonValue], ...] = ()


class _Names(Record):
    """The patterns of one of its entries."""

    names: tuple[str, ...] = Field(min_length=1)


def options_for(model: str, asked: ModelOptions, table: Path = TABLE) -> ModelOptions:
    """How a model is asked: what `asked` sets explicitly, over the table, over the defaults."""
    try:
        entries = _Quirks.model_validate(tomllib.loads(table.read_text(encoding="utf-8"))).model
        known = next((options for names, options in map(_entry, entries) if _fits(model, names)), ModelOptions())
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise UsageError(f"The table of quirks {table} cannot be read: {error}. Correct it or restore it.") from error
    return known.model_copy(update={name: getattr(asked, name) for name in asked.model_fields_set})


def _entry(entry: dict[str, JsonValue]) -> tuple[tuple[str, ...], ModelOptions]:
    names = _Names.model_validate({"names": entry.get("names", ())}).names
    return names, ModelOptions.model_validate({key: value for key, value in entry.items() if key != "names"})


def _fits(model: str, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(model.lower(), name.lower()) for name in names)
