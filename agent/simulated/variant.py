"""The family of kernels that the simulated model knows: causal convolutions on the host with six parameters."""

import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from tasks.record import Record

Fault = Literal["", "bracket left open", "wrong tap order", "missing tail"]
_LINE = re.compile(r"^variant: (\{.*\})$", re.M)


class Variant(Record):
    """The parameters of one kernel."""

    outputs: int = 1
    """Output channels that a tile sums at once, in registers."""
    times: int = 8
    """Time steps of a tile."""
    threads: bool = False
    """Whether the cores share the work."""
    packed: bool = False
    """Whether `prepare` lays out the weights in the order in which they are read."""
    taps_outside: bool = False
    """Whether taps are the outer loop of the sum, channels the inner."""
    fixed_taps: bool = False
    """Whether the usual number of taps is known when compiling."""
    fault: Fault = ""
    """What is wrong with it, if anything."""


VALUES: dict[str, tuple[object, ...]] = {
    "outputs": (1, 2, 4, 8),
    "times": (8, 16, 32, 64),
    "threads": (False, True),
    "packed": (False, True),
    "taps_outside": (False, True),
    "fixed_taps": (False, True),
}
"""What each parameter may be."""


def all_variants() -> Iterator[Variant]:
    """Every variant without a fault."""
    for values in itertools.product(*VALUES.values()):
        yield Variant.model_validate(dict(zip(VALUES, values, strict=True)))


def text_of(variant: Variant) -> str:
    """The candidate of a variant, always the same."""
    # A fault in the Python part leaves the C++ part as it is, whose build is then in the cache.
    return _template().render(**variant.model_dump(), variant=variant.model_dump_json())


def variants_in(text: str) -> list[Variant]:
    """The variants of all candidates in a text, in their order."""
    return [Variant.model_validate_json(found) for found in _LINE.findall(text)]


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        keep_trailing_newline=True,
    )
    return environment.get_template("candidate.py.jinja")
