"""Arguments of a task's `Model` survive the way to a worker as they are."""

import math
from typing import Any

import pytest
import torch

from tools.worker.plain_values import decode, encode


@pytest.mark.parametrize(
    "value",
    [
        [],
        [256, 3.5, "same", None, True],
        [(1, 2), [3, (4,)]],
        [{"kernel_size": 3, "padding": (1, 1)}],
        [{1: "a", None: "b", (2, 3): "c"}],
        [{"tuple": [1]}, {"dict": [2]}],
        [math.inf, -math.inf, 2**70, "größe \ud800 😀"],
    ],
)
def test_round_trip(value: list[Any]) -> None:
    back = decode(encode(value))
    assert back == value
    assert repr(back) == repr(value), "tuples stay tuples, whole numbers stay whole, booleans booleans"


def test_nan() -> None:
    assert math.isnan(decode(encode([math.nan]))[0])


@pytest.mark.parametrize("value", [[torch.ones(1)], [{"a": {1, 2}}], [torch.float32], [b"bytes"]])
def test_other_kinds_are_refused(value: list[Any]) -> None:
    with pytest.raises(TypeError, match="cannot be passed to a worker"):
        encode(value)
