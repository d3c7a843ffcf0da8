"""The base of every model that is stored or crosses a floor."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable value: unknown fields are refused, infinities survive JSON."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="strings",
    )
