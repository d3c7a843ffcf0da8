"""What a wrong output looks like: each class of mistake is named by its pattern; what fits none is not guessed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tools.accuracy import Limits
from tools.diagnosis import diagnose

LIMITS = Limits(rms=1e-5, channel=1e-5, peak=1e-4)
Mistake = Callable[[Tensor], Tensor]


def right(channels: int = 6, length: int = 100) -> Tensor:
    """An answer with means and scales of its own in every channel."""
    random = torch.Generator().manual_seed(7)
    values = torch.randn((3, channels, length), generator=random, dtype=torch.float64)
    return values * torch.linspace(0.5, 2.0, channels)[:, None] + torch.linspace(-1.0, 3.0, channels)[:, None]


def written(where: tuple[slice | int, ...], value: float) -> Mistake:
    def change(exact: Tensor) -> Tensor:
        out = exact.clone()
        out[where] = value
        return out

    return change


def disturbed(where: tuple[slice | int, ...]) -> Mistake:
    def change(exact: Tensor) -> Tensor:
        out = exact.clone()
        out[where] += 1.0 + torch.rand(out[where].shape, generator=torch.Generator().manual_seed(3)).double()
        return out

    return change


def shifted(step: int) -> Mistake:
    return lambda exact: torch.roll(exact, step, -1)


ALL = slice(None)
PATTERNS: list[tuple[str, Mistake, str]] = [
    ("zeros", torch.zeros_like, "nothing was computed: the output is zero everywhere"),
    ("never written", lambda exact: torch.full_like(exact, torch.nan), "nothing was written"),
    ("one later", shifted(1), "off by 1 along the length: output t is what t - 1 should be"),
    ("a dilation earlier", shifted(-3), "off by 3 along the length: output t is what t + 3 should be"),
    ("reversed", lambda exact: exact.flip(-1), "the output is reversed along the length"),
    ("tail never written", written((ALL, ALL, slice(96, None)), 0.0), "the last 4 of 100 positions hold zeros or no"),
    ("tail of a tile", written((ALL, ALL, slice(96, None)), torch.nan), "96, where they begin, is a multiple of 32"),
    ("wrong tail", disturbed((ALL, ALL, slice(96, None))), "a missing tail: the last 4 of 100 positions are wrong"),
    ("left edge", disturbed((ALL, ALL, slice(0, 3))), "padding: only the first 3 positions are wrong"),
    ("right edge", disturbed((ALL, ALL, slice(97, None))), "padding: only the last 3 positions are wrong"),
    (
        "both edges",
        lambda exact: disturbed((ALL, ALL, slice(0, 2)))(disturbed((ALL, ALL, slice(98, None)))(exact)),
        "padding: only the first 2 and the last 2 positions are wrong",
    ),
    ("a lane", disturbed((ALL, ALL, slice(3, None, 4))), "exactly the positions t with t % 4 in (3) are wrong"),
    ("last channels", disturbed((ALL, slice(4, None))), "a missing tail of channels: those from 4 on are wrong"),
    ("batch stride", disturbed((slice(2, None),)), "a batch index: no sample from 2 on is right"),
    ("exchanged", lambda exact: exact[:, [1, 0, 2, 3, 5, 4]], "output channel 0 is what channel 1 should be"),
    ("divided wrongly", lambda exact: exact * 0.75, "a constant factor"),
    ("no bias", lambda exact: exact - torch.linspace(-2.0, 2.5, 6)[:, None], "a bias: in every channel"),
    (
        "statistics over too much",
        lambda exact: exact * torch.linspace(0.5, 2.0, 18).reshape(3, 6, 1) + torch.linspace(1, 4, 18).reshape(3, 6, 1),
        "a wrong reduction",
    ),
]


@pytest.mark.parametrize(("mistake", "phrase"), [row[1:] for row in PATTERNS], ids=[row[0] for row in PATTERNS])
def test_a_class_of_mistake_is_named_by_its_pattern(mistake: Mistake, phrase: str) -> None:
    exact = right()
    found = diagnose(mistake(exact).float(), exact, LIMITS)
    assert phrase in found, found


@pytest.mark.parametrize(
    ("dtype", "phrase"),
    [(torch.float16, "TF32 or fp16 operands"), (torch.bfloat16, "bf16 operands")],
)
def test_short_operands_are_told_from_each_other(dtype: torch.dtype, phrase: str) -> None:
    random = torch.Generator().manual_seed(11)
    x = torch.randn((2, 16, 200), generator=random, dtype=torch.float64)
    weight = torch.randn((16, 16, 3), generator=random, dtype=torch.float64)
    exact = functional.conv1d(x, weight, padding=1)
    short = functional.conv1d(x.to(dtype).double(), weight.to(dtype).double(), padding=1)
    found = diagnose(short, exact, LIMITS)
    assert found.startswith("too little precision")
    assert phrase in found


def noise(exact: Tensor) -> Tensor:
    return torch.randn(exact.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


SILENT: list[tuple[str, Mistake]] = [
    ("right", lambda exact: exact),
    ("noise", noise),
    ("one element", disturbed((1, 2, 50))),
    ("a block in the middle", disturbed((ALL, ALL, slice(40, 57)))),
    ("one sample in the middle", disturbed((1,))),
    ("scattered", lambda exact: torch.where(noise(exact) > 1.0, exact + 1.0, exact)),
    ("a large constant", lambda exact: torch.full_like(exact, 3.0)),
    ("a small mistake in one channel", lambda exact: exact + 1e-3 * functional.pad(exact[:, :1], (0, 0, 0, 5))),
]


@pytest.mark.parametrize("mistake", [row[1] for row in SILENT], ids=[row[0] for row in SILENT])
def test_what_fits_no_class_is_not_guessed(mistake: Mistake) -> None:
    exact = right()
    assert diagnose(mistake(exact), exact, LIMITS) == ""


def test_outputs_too_short_or_alike_say_nothing() -> None:
    short = right(length=8)
    assert diagnose(shifted(1)(short), short, LIMITS) == ""
    alike = torch.ones((2, 4, 64), dtype=torch.float64)
    assert diagnose(alike * 2, alike, LIMITS) == "", "twice, one more, and any shift of it are the same here"
