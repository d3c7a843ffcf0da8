"""Inputs of timed calls: rolled, scaled and shifted, the same to the last bit on both sides."""

import pytest
import torch

from tools.worker.refresh import refresh_into


@pytest.mark.parametrize("roll", [0, 1, 5, 7, 8, 12])
@pytest.mark.parametrize("shape", [(2, 3, 8), (8,), (2, 3, 1)])
def test_as_a_roll_a_product_and_a_sum(shape: tuple[int, ...], roll: int) -> None:
    base = torch.randn(shape)
    scale = torch.rand(3, 1) + 0.5 if len(shape) == 3 else torch.rand(1) + 0.5
    shift = torch.rand(3, 1) - 0.5 if len(shape) == 3 else torch.rand(1) - 0.5
    buffer = torch.full(shape, float("nan"))
    refresh_into(buffer, base, roll, scale, shift)
    assert torch.equal(buffer, torch.roll(base, roll, dims=-1) * scale + shift)


def test_values_by_hand() -> None:
    buffer = torch.empty(4)
    refresh_into(buffer, torch.tensor([1.0, 2.0, 3.0, 4.0]), 1, torch.tensor([2.0]), torch.tensor([0.5]))
    assert buffer.tolist() == [8.5, 2.5, 4.5, 6.5]


def test_product_and_sum_round_one_after_the_other() -> None:
    """A fused multiply-add would give another last bit on some devices: (1 + 2**-12)**2 - 1 keeps 2**-24 only there."""
    factor = torch.tensor([1.0 + 2**-12])
    buffer = torch.empty(1)
    refresh_into(buffer, factor, 0, factor, torch.tensor([-1.0]))
    assert buffer.item() == 2**-11


def test_integers_are_only_rolled() -> None:
    buffer = torch.empty(3, dtype=torch.int64)
    refresh_into(buffer, torch.tensor([1, 2, 3]), 1, torch.tensor([2.0]), torch.tensor([9.0]))
    assert buffer.tolist() == [3, 1, 2]


def test_a_single_number_and_an_empty_tensor() -> None:
    number, empty = torch.empty(()), torch.empty(2, 0)
    refresh_into(number, torch.tensor(3.0), 0, torch.tensor(2.0), torch.tensor(1.0))
    assert number.item() == 7.0
    refresh_into(empty, torch.empty(2, 0), 0, torch.ones(1, 1), torch.zeros(1, 1))


def test_the_base_stays_as_it_is() -> None:
    base = torch.arange(6.0)
    refresh_into(torch.empty(6), base, 2, torch.tensor(3.0), torch.tensor(1.0))
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
