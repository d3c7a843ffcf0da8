"""The family of kernels that the simulated model knows: causal convolutions on the host with six parameters."""

import itertools
import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from pydantic import ValidationError

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


def drawn(draw: random.Random) -> Variant:
    """A variant without a fault, each as likely."""
    return Variant.model_validate({name: draw.choice(values) for name, values in VALUES.items()})


def text_of(variant: Variant, idea: str) -> str:
    """The candidate of a variant; `idea` is its docstring's first line, so it counts for the candidate's id."""
    # A fault in the Python part leaves the C++ part as it is, whose build is then in the cache.
    return _template().render(**variant.model_dump(), variant=variant.model_dump_json(), idea=idea)


def variant_of(text: str) -> Variant | None:
    """The variant of a candidate's text; None where it is none of this family."""
    found = _LINE.search(text)
    try:
        return None if found is None else Variant.model_validate(json.loads(found[1]))
    except (ValueError, ValidationError):
        return None


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
