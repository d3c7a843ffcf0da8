"""What is drawn: values whose channels differ, from seeds that nobody keeps."""

import pytest
import torch

from tasks.spec import InputSpec
from tools.draws import (
    CONSTANT,
    FAR,
    IMPULSES,
    LARGE,
    SMALL,
    UNEVEN,
    USUAL,
    Draws,
    InputKind,
    channel_shape,
    input_shape,
)

X = InputSpec(name="x", dims=("N", 16, "L"))
SHAPE = (2, 16, 4000)


def drawn(spec: InputSpec = X, kind: InputKind = USUAL, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    return Draws("cpu").input(spec, shape, kind)


def test_two_sessions_draw_different_values() -> None:
    assert not torch.equal(drawn(), drawn())
    first, second = Draws("cpu"), Draws("cpu")
    assert not torch.equal(first.host_uniform((8,), 0.0, 1.0), second.host_uniform((8,), 0.0, 1.0))
    assert first.state({"w": torch.empty(4, 4)})["w"].ne(second.state({"w": torch.empty(4, 4)})["w"]).any()


def test_pytorchs_own_seed_decides_nothing() -> None:
    """A task file that calls torch.manual_seed must not fix what is drawn."""
    torch.manual_seed(7)
    first = drawn()
    torch.manual_seed(7)
    assert not torch.equal(first, drawn())


def test_channels_have_means_and_spreads_of_their_own() -> None:
    values = drawn()
    # 8,000 samples a channel: the standard error of a mean is at most 1.5 / sqrt(8000) = 0.017.
    means, spreads = values.mean((0, 2)), values.std((0, 2))
    assert means.std() > 0.1
    assert means.abs().max() < 1.1
    assert spreads.min() > 0.45
    assert spreads.max() < 1.55
    assert spreads.std() > 0.05


@pytest.mark.parametrize(("kind", "least", "most"), [(FAR, 3.0, 40.0), (LARGE, 3e4, 4e5), (SMALL, 3e-7, 4e-6)])
def test_kinds_have_their_size(kind: InputKind, least: float, most: float) -> None:
    rms = float(drawn(kind=kind).square().mean().sqrt())
    assert least < rms < most


@pytest.mark.parametrize("kind", [USUAL, FAR, LARGE, SMALL, IMPULSES, CONSTANT, UNEVEN])
def test_half_precision_neither_overflows_nor_vanishes(kind: InputKind) -> None:
    """Scaled by 1e5, float16 inputs were infinite, and every kernel right that answered NaN."""
    values = drawn(X.model_copy(update={"dtype": "float16"}), kind)
    # A tenth of the largest float16: room for what the reference adds up.
    assert values.abs().max() < 6_550
    per_channel = values.double().square().mean((0, 2)).sqrt()
    # Half a unit in the last place of float16's smallest numbers is 2**-25.
    assert per_channel.min() > 1_000 * 2.0**-25


def test_impulses_are_few_and_every_channel_has_one_however_short() -> None:
    tiny = torch.finfo(torch.float32).tiny
    values = drawn(kind=IMPULSES)
    share = float((values.abs() >= tiny).float().mean())
    assert share == pytest.approx(1 / 16, abs=0.003)
    rest = values[values.abs() < tiny]
    assert 0.4 < float((rest == 0).float().mean()) < 0.7
    assert rest.min() < -0.9 * tiny < 0.9 * tiny < rest.max()
    for length in (1, 2, 7):
        short = drawn(kind=IMPULSES, shape=(2, 16, length))
        assert bool((short.abs() >= tiny).any(2).all())


def test_constant_rows_differ_by_sample_and_channel() -> None:
    values = drawn(kind=CONSTANT)
    assert torch.equal(values, values[..., :1].expand(SHAPE))
    assert values[..., 0].unique().numel() == 32


def test_uneven_channels_span_six_decades() -> None:
    sizes = drawn(X.model_copy(update={"dims": ("N", 256, "L")}), UNEVEN, (2, 256, 100)).square().mean((0, 2)).sqrt()
    # Spread and offset add a factor of 0.4 to 2.
    assert 4e-4 < sizes.min() < 3e-3
    assert 4e2 < sizes.max() < 3e3


def test_both_ends_of_uneven_scales_are_in_every_draw() -> None:
    """Of few channels, all might have been of middling size by luck, and a mutant be seen in one verification only."""
    orders = set()
    for _ in range(20):
        sizes = drawn(X.model_copy(update={"dims": ("N", 4, "L")}), UNEVEN, (2, 4, 100)).square().mean((0, 2)).sqrt()
        assert sizes.min() < 3e-3 < 4e2 < sizes.max()
        orders.add(tuple(sizes.argsort().tolist()))
    assert len(orders) > 3


@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
@pytest.mark.parametrize("kind", [IMPULSES, CONSTANT, UNEVEN])
def test_tensors_without_a_length_are_drawn_too(shape: tuple[int, ...], kind: InputKind) -> None:
    spec = InputSpec(name="w", dims=shape, channel_dim=None, domain="nonnegative")
    values = drawn(spec, kind, shape)
    assert values.shape == shape
    assert bool((values >= 0).all()) and float(values.max()) > 1e-4


def test_values_of_domains() -> None:
    nonnegative = drawn(X.model_copy(update={"domain": "nonnegative"}))
    assert nonnegative.min() >= 0
    whole = drawn(InputSpec(name="i", dims=("N", 16, "L"), dtype="int64", domain="integer", high=5))
    assert whole.dtype is torch.int64
    assert whole.unique().tolist() == [0, 1, 2, 3, 4]


def test_the_specs_dtype() -> None:
    assert drawn(X.model_copy(update={"dtype": "bfloat16"})).dtype is torch.bfloat16


def test_every_parameter_and_buffer_is_drawn() -> None:
    template = torch.nn.Sequential(torch.nn.Conv1d(64, 32, 3), torch.nn.BatchNorm1d(32)).state_dict()
    state = Draws("cpu").state(dict(template))
    assert set(state) == set(template)
    for name, value in state.items():
        assert value.shape == template[name].shape
        assert value.dtype == template[name].dtype
    assert state["1.running_var"].min() >= 0.5
    assert 0.5 <= state["1.weight"].min() < state["1.weight"].max() <= 1.5
    assert 1 <= int(state["1.num_batches_tracked"]) <= 100
    # A sum of 64 * 3 products of unit variance with weights of variance 1 / 192 has unit variance.
    assert float(state["0.weight"].std()) == pytest.approx(192**-0.5, rel=0.1)
    for name in ("0.bias", "1.bias", "1.running_mean"):
        assert state[name].std() > 0.2, f"{name} would be invisible at its default of 0"


def test_whole_numbers_lie_within_their_ends() -> None:
    draws = Draws("cpu")
    assert {draws.integer(2, 4) for _ in range(200)} == {2, 3, 4}


def test_shapes() -> None:
    assert input_shape(X, {"N": 3, "L": 7}) == (3, 16, 7)
    assert channel_shape((3, 16, 7), 1) == (1, 16, 1)
    assert channel_shape((3, 16, 7), None) == (1, 1, 1)
    assert channel_shape((3,), 1) == (1,)
    assert channel_shape((), None) == ()
