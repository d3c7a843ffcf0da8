"""Inputs of timed calls: new values from two secret bases, the same to the last bit when made again."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tasks.spec import InputSpec
from tools.draws import Draws
from tools.fresh_inputs import SHORTEST, CacheFlush, FreshInputs, Made, Recipe, longest_dim

SIZES = {"N": 2, "L": 12}
REAL = InputSpec(name="x", dims=("N", 3, "L"))


def fresh(*specs: InputSpec) -> FreshInputs:
    return FreshInputs(specs, SIZES, Draws("cpu"))


def bases_of(inputs: FreshInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """The two bases of one input: with rolls of 0, a scale of 1 and a shift of 0 their product comes out."""
    return inputs._bases[0]


@pytest.mark.parametrize("rolls", [(0, 0), (1, 0), (0, 5), (11, 7), (12, 30)])
def test_as_rolls_products_and_a_sum(rolls: tuple[int, int]) -> None:
    inputs = fresh(REAL)
    first, second = bases_of(inputs)
    scale, shift = torch.rand(1, 3, 1) + 0.5, torch.rand(1, 3, 1) - 0.5
    (made,) = inputs.made([Made((first, second), rolls, scale, shift)])
    assert torch.equal(made, torch.roll(first, rolls[0], -1) * torch.roll(second, rolls[1], -1) * scale + shift)


def test_product_and_sum_round_one_after_the_other() -> None:
    """A fused multiply-add would give another last bit on some devices: (1 + 2**-12)**2 - 1 keeps 2**-24 only there."""
    inputs = fresh(InputSpec(name="x", dims=(1,)))
    factor = torch.tensor([1.0 + 2**-12])
    for base, value in zip(bases_of(inputs), (1.0 + 2**-12, 1.0), strict=True):
        base.fill_(value)
    (made,) = inputs.made([Made(bases_of(inputs), (0, 0), factor, torch.tensor([-1.0]))])
    assert made.item() == 2**-11


def test_every_call_has_other_inputs() -> None:
    inputs = fresh(REAL)
    made = [inputs.made(inputs.draw())[0] for _ in range(20)]
    assert not any(torch.equal(one, other) for i, one in enumerate(made) for other in made[:i])


def test_no_input_is_a_rolled_and_scaled_copy_of_another() -> None:
    """With one base, convolutions of single channels of later calls followed from those of earlier ones."""
    inputs = fresh(InputSpec(name="x", dims=(1, 1, 64)))
    bases = bases_of(inputs)
    same = (torch.ones(1, 1, 1), torch.zeros(1, 1, 1))
    one, other = (inputs.made([Made(bases, rolls, *same)])[0].flatten().double() for rolls in ((3, 10), (5, 40)))
    for roll in range(64):
        rolled = torch.stack([torch.roll(other, roll), torch.ones(64, dtype=torch.float64)], 1)
        left = torch.linalg.lstsq(rolled, one[:, None]).solution
        residual = (rolled @ left)[:, 0] - one
        assert float(residual.square().mean().sqrt() / one.std()) > 0.05


def test_written_again_the_bits_are_the_same() -> None:
    inputs = fresh(REAL, InputSpec(name="ids", dims=("N", "L"), dtype="int64", domain="integer", high=5))
    recipe: Recipe = inputs.draw()
    buffers = [torch.empty_like(tensor) for _, tensor in inputs.like]
    inputs.write(recipe, buffers)
    assert all(torch.equal(made, buffer) for made, buffer in zip(inputs.made(recipe), buffers, strict=True))


def residual_of_scaling(one: torch.Tensor, other: torch.Tensor) -> float:
    """How much of the second's deviation remains at least when the first, scaled and shifted, is taken from it."""
    x, y = one.flatten().double(), other.flatten().double()
    x, y = x - x.mean(), y - y.mean()
    return float((y - (x @ y) / (x @ x) * x).norm() / y.norm())


SHORT = [(2, 1, 60, 1), (2, 1, 3, 4), (1, 1, 499), (40, 1), (2, 1, 1500, 1), (1200, 1, 2)]


@pytest.mark.parametrize("shape", SHORT, ids=str)
def test_short_dimensions_make_no_input_a_scaled_copy_of_another(shape: tuple[int, ...]) -> None:
    """Rolled along a last dimension of one, an input of one channel was the first one, scaled and shifted."""
    inputs = fresh(InputSpec(name="x", dims=shape))
    made = [inputs.made(inputs.draw())[0] for _ in range(12)]
    assert all(residual_of_scaling(one, other) > 0.05 for i, one in enumerate(made) for other in made[:i])


def test_scaled_copies_are_told_as_such() -> None:
    values = torch.randn(2, 1, 60, 1)
    assert residual_of_scaling(values, values * 1.25 - 0.5) < 1e-6


def test_short_integers_are_drawn_anew() -> None:
    """With two bases of three by one there was one input in all."""
    inputs = fresh(InputSpec(name="ids", dims=(3, 1), dtype="int64", domain="integer", high=1000))
    assert len({tuple(inputs.made(inputs.draw())[0].flatten().tolist()) for _ in range(12)}) == 12


def test_long_inputs_keep_their_bases_and_short_ones_do_not() -> None:
    for length, kept in ((SHORTEST - 1, False), (SHORTEST, True)):
        inputs = fresh(InputSpec(name="x", dims=(2, 1, length, 1)))
        ((one, *_),), ((other, *_),) = inputs.draw(), inputs.draw()
        assert (one[0] is other[0]) is kept


def test_a_recipe_gives_its_own_bits_after_later_ones_were_drawn() -> None:
    inputs = fresh(REAL, InputSpec(name="y", dims=(2, 1200, 1)), InputSpec(name="z", dims=()))
    recipe = inputs.draw()
    before = inputs.made(recipe)
    inputs.made(inputs.draw())
    assert all(torch.equal(one, other) for one, other in zip(before, inputs.made(recipe), strict=True))


def test_rolled_along_the_longest_dimension() -> None:
    inputs = fresh(InputSpec(name="x", dims=(2, 3, 7, 2)))
    first, second = bases_of(inputs)
    one, none = torch.ones(1), torch.zeros(1)
    (made,) = inputs.made([Made((first, second), (2, 5), one, none)])
    assert torch.equal(made, torch.roll(first, 2, 2) * torch.roll(second, 5, 2))


@pytest.mark.parametrize(("shape", "dim"), [((5,), 0), ((4, 4, 4), 2), ((9, 3, 9, 1), 2), ((2, 3, 8), 2)])
def test_the_last_of_the_longest_dimensions(shape: tuple[int, ...], dim: int) -> None:
    assert longest_dim(shape) == dim


def test_integers_stay_below_their_bound_and_take_every_value() -> None:
    inputs = fresh(InputSpec(name="ids", dims=("N", 40, "L"), dtype="int64", domain="integer", high=5))
    for _ in range(10):
        (made,) = inputs.made(inputs.draw())
        assert made.dtype == torch.int64
        assert set(made.flatten().tolist()) == {0, 1, 2, 3, 4}


def test_what_must_not_be_negative_is_not() -> None:
    inputs = fresh(InputSpec(name="x", dims=("N", 3, "L"), domain="nonnegative"))
    assert all(float(inputs.made(inputs.draw())[0].min()) >= 0.0 for _ in range(10))


def test_a_single_number() -> None:
    inputs = fresh(InputSpec(name="x", dims=()))
    assert inputs.made(inputs.draw())[0].shape == ()


class Reads(TorchDispatchMode):
    """Notes which elements of its storage each sum reads."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: list[range] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() == "aten::sum":
            at = args[0].storage_offset()
            self.read.append(range(at, at + args[0].numel()))
        return func(*args, **(kwargs or {}))


def test_the_host_reads_a_quarter_more_than_its_caches_hold_of_what_is_in_none_of_them() -> None:
    cache_bytes = 4096
    flush = CacheFlush("cpu", cache_bytes)
    with Reads() as reads:
        for _ in range(3):
            flush.run()
    first, second, third = reads.read
    assert len(first) == len(second) == 5 * cache_bytes // 4 // 4
    assert not set(first) & set(second)
    assert third == first


def test_other_devices_read_both_halves_each_time() -> None:
    flush = CacheFlush("meta", 4096)
    with Reads() as reads:
        flush.run()
        flush.run()
    assert reads.read == [range(2560), range(2560)]
