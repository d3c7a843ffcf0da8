"""Rounding of operands to a precision class: values worked out by hand on the stored mantissa."""

import math

import pytest
import torch
from torch.nn import functional

from tasks.spec import Precision
from tools.rounding import MANTISSA_BITS, RoundedProducts, cut_mantissa, round_mantissa

TF32 = 10
INF, NAN = math.inf, math.nan


def rounded(value: float, bits: int = TF32) -> float:
    return float(round_mantissa(torch.tensor([value], dtype=torch.float64), bits))


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (1.0, 1.0),
        (1.0 + 2**-10, 1.0 + 2**-10),
        (1.0 + 2**-11 - 2**-40, 1.0),
        (1.0 + 2**-11 + 2**-40, 1.0 + 2**-10),
        (1.0 + 2**-11, 1.0 + 2**-10),
        (1.0 + 3 * 2**-11, 1.0 + 2**-9),
        (2.0 - 2**-12, 2.0),
        (3.0 * 2**60 * (1 + 2**-13), 3.0 * 2**60),
        (2.0**-300, 2.0**-300),
        (0.1, 1638 * 2.0**-14),
        (0.0, 0.0),
    ],
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tf32_keeps_ten_bits_and_ties_go_away_from_zero(value: float, right: float, sign: float) -> None:
    assert rounded(sign * value) == sign * right


def test_bits_of_the_other_classes() -> None:
    assert rounded(1.0 + 2**-8, MANTISSA_BITS[Precision.BF16]) == 1.0 + 2**-7
    assert rounded(1.0 + 2**-9, MANTISSA_BITS[Precision.BF16]) == 1.0
    assert rounded(1.0 + 2**-11, MANTISSA_BITS[Precision.FP16]) == 1.0 + 2**-10
    assert rounded(1.0 + 2**-20, MANTISSA_BITS[Precision.FP32]) == 1.0 + 2**-19
    assert rounded(1.0 + 2**-21, MANTISSA_BITS[Precision.FP32]) == 1.0


def test_infinity_and_nan_stay() -> None:
    assert rounded(INF) == INF
    assert rounded(-INF) == -INF
    assert math.isnan(rounded(NAN))


def test_bf16_agrees_with_pytorch_off_the_ties() -> None:
    values = torch.linspace(-3.0, 3.0, 1001, dtype=torch.float64)
    off_ties = values[((values.abs() * 2.0**20).frac() != 0) | (values == 0)]
    assert torch.equal(round_mantissa(off_ties, 7), off_ties.to(torch.bfloat16).to(torch.float64))


def test_a_slice_with_gaps_is_rounded_elementwise() -> None:
    values = torch.full((4, 4), 1.0 + 2**-11, dtype=torch.float64)[:, ::2]
    assert torch.equal(round_mantissa(values, TF32), torch.full((4, 2), 1.0 + 2**-10, dtype=torch.float64))


# Rounded to TF32 it is 1 + 2**-10; the bias keeps every bit.
TIE = 1.0 + 2**-11
BIAS = 2.0**-30
ROUNDED_SQUARE = (1.0 + 2**-10) ** 2


def of(value: float, *shape: int) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.float64)


def test_operands_of_a_convolution_are_rounded_and_its_bias_is_not() -> None:
    with RoundedProducts(Precision.TF32):
        out = functional.conv1d(of(TIE, 1, 1, 5), of(TIE, 1, 1, 1), of(BIAS, 1))
    assert torch.equal(out, of(ROUNDED_SQUARE + BIAS, 1, 1, 5))


def test_a_depthwise_convolution_too() -> None:
    with RoundedProducts(Precision.TF32):
        out = functional.conv1d(of(TIE, 1, 4, 5), of(TIE, 4, 1, 1), groups=4)
    assert torch.equal(out, of(ROUNDED_SQUARE, 1, 4, 5))


@pytest.mark.parametrize("batched", [False, True])
def test_operands_of_a_linear_layer(batched: bool) -> None:
    shape = (2, 3, 1) if batched else (3, 1)
    with RoundedProducts(Precision.TF32):
        out = functional.linear(of(TIE, *shape), of(TIE, 4, 1), of(BIAS, 4))
    assert torch.equal(out, of(ROUNDED_SQUARE + BIAS, *shape[:-1], 4))


def test_operands_of_batched_products() -> None:
    with RoundedProducts(Precision.TF32):
        assert torch.equal(torch.bmm(of(TIE, 2, 3, 1), of(TIE, 2, 1, 3)), of(ROUNDED_SQUARE, 2, 3, 3))
        assert torch.equal(torch.einsum("ij,jk->ik", of(TIE, 2, 2), of(TIE, 2, 2)), of(2 * ROUNDED_SQUARE, 2, 2))
        added = torch.baddbmm(of(BIAS, 2, 3, 3), of(TIE, 2, 3, 1), of(TIE, 2, 1, 3))
    assert torch.equal(added, of(ROUNDED_SQUARE + BIAS, 2, 3, 3))


def test_nothing_else_is_rounded() -> None:
    with RoundedProducts(Precision.TF32):
        assert torch.equal(of(TIE, 3) * of(TIE, 3) + of(BIAS, 3), of(TIE * TIE + BIAS, 3))
    assert torch.equal(torch.mm(of(TIE, 2, 1), of(TIE, 1, 2)), of(TIE * TIE, 2, 2))


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (1.0 + 2**-10, 1.0 + 2**-10),
        (1.0 + 2**-10 - 2**-40, 1.0),
        (2.0 - 2**-40, 2.0 - 2**-10),
        (2.0**-300 * (1 + 2**-11), 2.0**-300),
        (0.0, 0.0),
        (INF, INF),
    ],
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cutting_goes_toward_zero(value: float, right: float, sign: float) -> None:
    assert float(cut_mantissa(torch.tensor([sign * value], dtype=torch.float64), TF32)) == sign * right


def test_operands_are_cut_where_asked() -> None:
    with RoundedProducts(Precision.TF32, cutting=True):
        out = functional.conv1d(of(TIE, 1, 1, 5), of(TIE, 1, 1, 1), of(BIAS, 1))
    assert torch.equal(out, of(1.0 + BIAS, 1, 1, 5))
