"""The price table: what each model's server charges, where it is known."""

import tomllib
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from runs.config import Prices
from tasks.errors import UsageError

TABLE = Path(__file__).parent / "prices.toml"
_TABLE_FORM = TypeAdapter(dict[str, Prices])


def prices_of(model: str, table: Path = TABLE) -> Prices | None:
    """A model's prices; None where the table does not list it."""
    try:
        prices = _TABLE_FORM.validate_python(tomllib.loads(table.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise UsageError(f"The price table {table} cannot be read: {error}. Correct it or restore it.") from error
    return prices.get(model)
