"""Errors against the oracle computed by hand, and what the precision classes allow."""

import math

import pytest
import torch

from tasks.spec import Precision
from tools.accuracy import Errors, Limits, limits, measure, measure_roughly

INF, NAN = math.inf, math.nan


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float64)


def errors(rms: float = 0.0, channel: float = 0.0, peak: float = 0.0, broken: int = 0) -> Errors:
    return Errors(rms, channel, peak, broken, ())


def test_an_equal_output_has_no_error() -> None:
    assert measure(ones(2, 3, 40).to(torch.float32), ones(2, 3, 40)) == Errors(0.0, 0.0, 0.0, 0, (0, 0, 0))


def test_one_element_off() -> None:
    output = ones(1, 1, 100)
    output[0, 0, 37] = 1.5
    found = measure(output, ones(1, 1, 100))
    # sqrt(0.5**2 / 100) over 1
    assert found.rms == pytest.approx(0.05)
    assert found.channel == pytest.approx(0.05)
    assert found.peak == pytest.approx(0.5)
    assert found.peak_at == (0, 0, 37)


def test_a_quiet_channel_is_measured_by_its_own_size() -> None:
    oracle = torch.cat([ones(1, 1, 50), 10.0 * ones(1, 1, 50)], dim=1)
    output = oracle.clone()
    output[:, 0] += 0.01
    found = measure(output, oracle)
    # whole: sqrt(0.01**2 / 2) / sqrt((1 + 100) / 2); the channel alone: 0.01 / 1
    assert found.rms == pytest.approx(0.01 / math.sqrt(101))
    assert found.channel == pytest.approx(0.01)
    assert found.peak == pytest.approx(0.01)
    assert found.peak_at[1] == 0


def test_a_channel_of_few_elements_is_measured_by_the_whole_tensors_size() -> None:
    """At length 1 a channel's only value may be near zero by luck."""
    oracle = torch.cat([1e-3 * ones(1, 1, 4), ones(1, 1, 4)], dim=1)
    output = oracle.clone()
    output[:, 0] += 1e-4
    whole = math.sqrt((1e-6 + 1.0) / 2)
    short = measure(output, oracle)
    assert short.peak == pytest.approx(1e-4 / whole)
    assert short.channel == short.rms == pytest.approx(1e-4 / math.sqrt(2) / whole)
    long = measure(output.repeat(8, 1, 1), oracle.repeat(8, 1, 1))
    assert long.channel == pytest.approx(0.1), "32 elements a channel have a size of their own"


def test_a_vector_and_a_number_have_no_channels() -> None:
    found = measure(torch.tensor([1.0, 1.1], dtype=torch.float64), ones(2))
    assert found.channel == found.rms == pytest.approx(0.1 / math.sqrt(2))
    assert measure(torch.tensor(3.0), torch.tensor(2.0, dtype=torch.float64)).rms == pytest.approx(0.5)


def test_zeros_are_wholly_wrong_however_small_the_oracle() -> None:
    assert measure(torch.zeros(1, 2, 64), 1e-12 * ones(1, 2, 64)).rms == pytest.approx(1.0)


def test_a_channel_of_zeros_must_be_zeros() -> None:
    """For example a convolution whose input is zero there."""
    oracle = torch.cat([ones(1, 1, 40), 0.0 * ones(1, 1, 40)], dim=1)
    assert measure(oracle, oracle).channel == 0.0
    output = oracle.clone()
    output[0, 1, 3] = 1e-9
    # sqrt(1e-18 / 40) over the smallest size that counts, 2**-100
    assert measure(output, oracle).channel == pytest.approx(1e-9 / math.sqrt(40) * 2.0**100)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32])
def test_a_flushed_denormal_is_no_error_even_where_a_channel_holds_nothing_else(precision: Precision) -> None:
    """A kernel compiled with --use_fast_math answers zeros there, one without it the denormals."""
    denormal = 2.0**-126 * (1.0 - 2.0**-23)
    oracle = torch.cat([ones(1, 1, 40), denormal * ones(1, 1, 40)], dim=1)
    allowed = limits(precision, [measure(oracle.to(torch.float32), oracle)], 0.0)
    for kept in (0.0, 1.0):
        output = oracle.to(torch.float32)
        output[:, 1] *= kept
        assert allowed.allow(measure(output, oracle))


def test_what_is_far_above_denormals_must_not_be_flushed() -> None:
    """In a tensor whose other channels are of the usual size."""
    oracle = torch.cat([ones(1, 1, 40), 1e-30 * ones(1, 1, 40)], dim=1)
    output = oracle.clone()
    output[:, 1] = 0.0
    assert measure(output, oracle).channel == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("output", "oracle", "broken"),
    [
        ([NAN, 1.0], [1.0, 1.0], 1),
        ([1.0, 1.0], [1.0, NAN], 1),
        ([NAN, 1.0], [NAN, 1.0], 0),
        ([INF, 1.0], [INF, 1.0], 0),
        ([-INF, 1.0], [INF, 1.0], 1),
        ([NAN, 1.0], [INF, 1.0], 1),
        ([INF, INF], [1.0, INF], 1),
    ],
)
def test_nan_and_infinity_stand_where_the_oracle_has_them(
    output: list[float], oracle: list[float], broken: int
) -> None:
    found = measure(torch.tensor(output), torch.tensor(oracle, dtype=torch.float64))
    assert found.pattern_broken == broken
    assert Limits(1.0, 1.0, 1.0).allow(found) is (broken == 0)


def test_the_first_broken_element_is_named() -> None:
    output = ones(2, 3, 4)
    output[1, 2, 1] = output[1, 2, 3] = NAN
    found = measure(output, ones(2, 3, 4))
    assert (found.pattern_broken, found.peak_at) == (2, (1, 2, 1))


def test_matching_infinities_do_not_hide_other_errors() -> None:
    oracle = torch.tensor([INF, 1.0, 1.0], dtype=torch.float64)
    found = measure(torch.tensor([INF, 1.0, 1.5]), oracle)
    # the infinite element counts as 0 on both sides: sqrt(0.25 / 3) / sqrt(2 / 3)
    assert found.rms == pytest.approx(0.5 / math.sqrt(2))
    assert found.peak_at == (2,)


def test_an_empty_output_is_right() -> None:
    assert Limits(0.0, 0.0, 0.0).allow(measure(torch.empty(0, 3, 5), torch.empty(0, 3, 5, dtype=torch.float64)))


@pytest.mark.parametrize(
    ("precision", "floor"),
    [(Precision.FP32, 5e-6), (Precision.TF32, 1e-5), (Precision.FP16, 3e-4), (Precision.BF16, 2.5e-3)],
)
def test_the_classs_floor_holds_where_pytorch_is_exact(precision: Precision, floor: float) -> None:
    allowed = limits(precision, [errors()], 0.0)
    assert (allowed.rms, allowed.channel, allowed.peak) == pytest.approx((floor, floor, 10 * floor))


def test_four_times_pytorchs_own_error_is_allowed() -> None:
    allowed = limits(Precision.TF32, [errors(1e-4, 2e-4, 5e-3), errors(3e-4, 1e-4, 1e-3)], 0.0)
    # channel: max(12e-4, 4 * 2e-4); peak: max(10 * 12e-4, 4 * 5e-3)
    assert (allowed.rms, allowed.channel, allowed.peak) == pytest.approx((12e-4, 12e-4, 20e-3))


def test_the_typical_error_counts_where_this_one_is_small_by_luck() -> None:
    assert limits(Precision.TF32, [errors(1e-7)], 2e-4).rms == pytest.approx(8e-4)


def test_cut_operands_pass_with_little_room_and_lift_no_limit_beyond_it() -> None:
    """Four times their error would let bf16 pass: it errs 8 times as much as rounding to TF32, cutting 2.6 times."""
    allowed = limits(Precision.TF32, [errors(1e-4, 1e-4, 1e-3)], 1e-4, errors(4e-4, 5e-4, 1e-2))
    # rms and channel: max(4 * 1e-4, 1.25 * theirs); peak: max(10 * channel, 1.25 * 1e-2)
    assert (allowed.rms, allowed.channel, allowed.peak) == pytest.approx((5e-4, 6.25e-4, 12.5e-3))
    assert limits(Precision.TF32, [errors(2e-4)], 0.0, errors(6e-4)).rms == pytest.approx(8e-4)


@pytest.mark.parametrize("factor", [1.0001, NAN])
def test_every_limit_counts(factor: float) -> None:
    allowed = Limits(1.0, 2.0, 3.0)
    assert allowed.allow(errors(1.0, 2.0, 3.0))
    assert not allowed.allow(errors(factor * 1.0, 2.0, 3.0))
    assert not allowed.allow(errors(1.0, factor * 2.0, 3.0))
    assert not allowed.allow(errors(1.0, 2.0, factor * 3.0))


def test_loosened_limits() -> None:
    assert Limits(1.0, 2.0, 3.0).loosened(3.0) == Limits(3.0, 6.0, 9.0)


def test_an_honest_implementation_that_overflows_does_not_lift_the_limits() -> None:
    """Where PyTorch itself gives infinities in the class, its error is infinite and must not become the limit."""
    allowed = limits(Precision.FP16, [errors(INF, 0.0, 0.0, broken=3), errors(1e-3, 1e-3, 1e-2)], 0.0)
    assert allowed.rms == pytest.approx(4e-3)


@pytest.mark.parametrize("shape", [(4, 3, 50), (2, 5, 7), (64,), (), (3, 40), (2, 3, 4, 30)])
def test_the_rough_measure_is_the_definition_in_working_precision(shape: tuple[int, ...]) -> None:
    """One place for both would not tell: the other is in float64, and by another way of adding."""
    expected = torch.randn(shape) * 3.0
    output = expected + 1e-3 * torch.randn(shape)
    rough, exact = measure_roughly(output, expected), measure(output, expected)
    found, wanted = ((each.rms, each.channel, each.peak) for each in (rough, exact))
    assert found == pytest.approx(wanted, rel=1e-3)


def test_the_rough_measure_by_hand() -> None:
    """Channels of 32 elements: the first is off by 1 in one element of 4s, the second is right."""
    expected = torch.full((1, 2, 32), 4.0)
    output = expected.clone()
    output[0, 0, 5] += 1.0
    found = measure_roughly(output, expected)
    assert found.rms == pytest.approx((1 / 64) ** 0.5 / 4)
    assert found.channel == pytest.approx((1 / 32) ** 0.5 / 4)
    assert found.peak == pytest.approx(1 / 4)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_the_rough_measure_allows_nothing_that_is_no_number(broken: float) -> None:
    expected = torch.ones(2, 3, 40)
    output = expected.clone()
    output[1, 2, 3] = broken
    assert not Limits(1e9, 1e9, 1e9).allow(measure_roughly(output, expected))


def test_the_rough_measure_knows_infinities_in_their_places() -> None:
    """Their differences are no numbers, and a right output was called stale."""
    expected = torch.ones(2, 3, 40)
    expected[0, 1, 2] = torch.inf
    assert Limits(1e-6, 1e-6, 1e-6).allow(measure_roughly(expected.clone(), expected))
    assert not Limits(1e9, 1e9, 1e9).allow(measure_roughly(torch.ones(2, 3, 40), expected))


def written_out(output: torch.Tensor, expected: torch.Tensor) -> tuple[float, float, float]:
    """The whole tensor's, the worst channel's and the largest element's error by their definitions, in float64."""
    true = expected.double()
    off = output.double() - true
    scale = true.square().mean((0, 2)).sqrt()
    rms = off.square().mean().sqrt() / true.square().mean().sqrt()
    channel = (off.square().mean((0, 2)).sqrt() / scale).max()
    return float(rms), float(channel), float((off.abs().amax((0, 2)) / scale).max())


@pytest.mark.parametrize("tiny", [(0, 1, 2), (1,)], ids=["all channels", "one channel"])
@pytest.mark.parametrize("size", [1e-16, 1e-20, 1e-24, 1e-28])
def test_the_rough_measure_of_tiny_channels_is_the_definition(tiny: tuple[int, ...], size: float) -> None:
    """Squares of 1e-24 are nothing in float32: a right output was called stale, its scale being the least number."""
    random = torch.Generator().manual_seed(3)
    expected = torch.randn(4, 3, 200, generator=random)
    output = expected + 1e-3 * torch.randn(4, 3, 200, generator=random)
    for values in (expected, output):
        values[:, list(tiny)] *= size
    found = measure_roughly(output, expected)
    assert (found.rms, found.channel, found.peak) == pytest.approx(written_out(output, expected), rel=1e-3)


def test_the_rough_measure_of_a_tiny_channel_sees_what_is_wrong_in_it() -> None:
    expected = torch.ones(2, 3, 40)
    expected[:, 1] = 1e-24
    output = expected.clone()
    assert measure_roughly(output, expected).channel == 0.0
    output[:, 1] = 0.0
    assert measure_roughly(output, expected).channel == pytest.approx(1.0)


def test_the_rough_measure_of_a_channel_of_zeros() -> None:
    expected = torch.ones(2, 3, 40)
    expected[:, 1] = 0.0
    assert Limits(1e-6, 1e-6, 1e-6).allow(measure_roughly(expected.clone(), expected))
    output = expected.clone()
    output[0, 1, 7] = 1e-6
    assert not Limits(1.0, 1.0, 1.0).allow(measure_roughly(output, expected))
