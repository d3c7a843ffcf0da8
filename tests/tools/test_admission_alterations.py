"""What each alteration makes of a reference, against answers worked out by hand or with other functions of PyTorch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tools import alterations


class Plus(nn.Module):
    """x + Conv1d(x), with a counter of its calls."""

    def __init__(self, dilation: int = 1, padding: int | str = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3, padding=padding, dilation=dilation, stride=stride)
        self.register_buffer("calls", torch.zeros(()))
        self.residual = stride == 1

    def forward(self, x: Tensor) -> Any:
        self.get_buffer("calls").add_(1)
        y = self.conv(x)
        return x + y if self.residual else y


def altered(alteration: str, model: nn.Module, *inputs: Tensor, **settings: Any) -> Any:
    with torch.no_grad():
        return getattr(alterations, alteration)(model, type(model).forward, inputs, **settings)


ROW = torch.arange(1.0, 7.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("zeros", [0, 0, 0, 0, 0, 0]),
        ("shifted later", [0, 1, 2, 3, 4, 5]),
        ("shifted earlier", [2, 3, 4, 5, 6, 0]),
        ("no last element", [1, 2, 3, 4, 5, 0]),
        ("no tail", [1, 2, 3, 4, 0, 0]),
    ],
)
def test_changes_along_the_last_dimension(change: str, expected: list[float]) -> None:
    x = ROW.expand(2, 3, 6).clone()
    out = altered("output_changed", nn.Identity(), x, output=0, change=change)
    assert torch.equal(out, torch.tensor(expected, dtype=torch.float32).expand(2, 3, 6))
    assert torch.equal(x, ROW.expand(2, 3, 6))


def test_the_last_channel_and_the_last_sample_are_dropped() -> None:
    x = torch.ones(2, 3, 4)
    no_channel = altered("output_changed", nn.Identity(), x, output=0, change="no last channel")
    assert no_channel.sum((0, 2)).tolist() == [8, 8, 0]
    no_sample = altered("output_changed", nn.Identity(), x, output=0, change="no last sample")
    assert no_sample.sum((1, 2)).tolist() == [12, 0]


def test_one_output_of_several_is_changed() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"a": (x, x + 1), "b": x + 2}

    x = torch.ones(2, 2)
    out = altered("output_changed", Two(), x, output=1, change="zeros")
    assert out["a"][0].tolist() == [[1, 1], [1, 1]]
    assert out["a"][1].tolist() == [[0, 0], [0, 0]]
    assert out["b"].tolist() == [[3, 3], [3, 3]]


def test_a_copied_input_is_cropped_and_repeated() -> None:
    class Other(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.new_zeros(1, 3, 4)

    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]]])
    out = altered("input_copied", Other(), x, output=0, source=0)
    assert out.tolist() == [[[1, 2, 3, 4], [6, 7, 8, 9], [1, 2, 3, 4]]]


@pytest.mark.parametrize(
    ("before", "padding", "after"),
    [(1, 1, 2), (1, "same", 2), (1, 0, 2), (1, "valid", 2), (4, 4, 1), (4, "same", 1), (4, 0, 1)],
)
def test_another_dilation_keeps_the_shape(before: int, padding: int | str, after: int) -> None:
    model = Plus(before, padding)
    model.residual = False
    x = torch.randn(2, 3, 20)
    out = altered("dilation_changed", model, x, call=1, name="conv1d")
    assert out.shape == model(x).shape
    # The same taps, where neither sees the padding: correlate by hand around each position.
    weight, bias = model.conv.weight, model.get_parameter("conv.bias")
    offset = (20 - out.shape[-1]) // 2
    for t in range(8, 12):
        taps = torch.stack([x[..., t + (k - 1) * after] for k in range(3)], -1)
        expected = torch.einsum("ock,nck->no", weight, taps) + bias
        torch.testing.assert_close(out[..., t - offset], expected.detach(), rtol=1e-4, atol=1e-5)


def test_another_dilation_keeps_the_shape_with_a_stride_and_in_two_dimensions() -> None:
    x = torch.randn(2, 3, 21)
    model = Plus(stride=2)
    out = altered("dilation_changed", model, x, call=1, name="conv1d")
    expected = functional.conv1d(x, model.conv.weight, model.conv.bias, stride=2, padding=2, dilation=2)
    torch.testing.assert_close(out, expected.detach())

    plane, image = nn.Conv2d(3, 2, (3, 5), padding=(1, 2)), torch.randn(1, 3, 9, 11)
    expected = functional.conv2d(image, plane.weight, plane.bias, padding=(2, 4), dilation=2).detach()
    torch.testing.assert_close(altered("dilation_changed", plane, image, call=0, name="conv2d"), expected)


def test_a_transposed_convolution_keeps_its_shape() -> None:
    model, x = nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1), torch.randn(2, 3, 9)
    out = altered("dilation_changed", model, x, call=0, name="conv_transpose1d")
    expected = functional.conv_transpose1d(x, model.weight, model.bias, stride=2, padding=4, dilation=3)
    assert out.shape == model(x).shape
    torch.testing.assert_close(out, expected.detach())


def test_a_call_is_left_out_and_the_residual_on_either_side() -> None:
    model, x = Plus(), torch.randn(2, 3, 20)
    torch.testing.assert_close(altered("call_left_out", model, x, call=1, name="conv1d", keep=0), x + x)
    assert torch.equal(altered("call_left_out", model, x, call=2, name="add", keep=0), x)
    conv_alone = functional.conv1d(x, model.conv.weight, model.conv.bias, padding=1).detach()
    torch.testing.assert_close(altered("call_left_out", model, x, call=2, name="add", keep=1), conv_alone)


@pytest.mark.parametrize("call", [0, 2, 99])
def test_a_call_that_is_another_one_is_no_mutant(call: int) -> None:
    with pytest.raises(LookupError, match=f"call {call} is of .*, not of conv1d"):
        altered("call_left_out", Plus(), torch.randn(2, 3, 20), call=call, name="conv1d", keep=0)


def test_a_module_is_left_out_once() -> None:
    model, x = Plus(), torch.randn(2, 3, 20)
    right = model(x).detach()
    torch.testing.assert_close(altered("module_left_out", model, x, module="conv"), x + x)
    torch.testing.assert_close(model(x).detach(), right)


def test_values_are_changed_for_one_call() -> None:
    model, x = Plus(), torch.randn(2, 3, 20)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    out = altered("values_changed", model, x, values={"conv.bias": 0.0})
    expected = x + functional.conv1d(x, model.conv.weight, padding=1).detach()
    torch.testing.assert_close(out, expected)
    assert torch.equal(model.get_parameter("conv.bias"), before["conv.bias"])
    assert float(model.get_buffer("calls")) == float(before["calls"]) + 1


def test_a_buffer_is_kept() -> None:
    model, x = Plus(), torch.randn(2, 3, 20)
    right = model(x).detach()
    out = altered("buffer_kept", model, x, buffer="calls")
    torch.testing.assert_close(out, right)
    assert float(model.get_buffer("calls")) == 1


def test_computing_in_float64_updates_the_buffers_and_casts_back() -> None:
    model, x = Plus(), torch.randn(2, 3, 20)
    out = altered("computed_in", model, x, dtype="float64", outputs=("float32",))
    assert model.conv.bias is not None
    exact = x.double() + functional.conv1d(x.double(), model.conv.weight.double(), model.conv.bias.double(), padding=1)
    assert out.dtype == torch.float32
    assert torch.equal(out, exact.detach().float())
    assert float(model.get_buffer("calls")) == 1
    assert torch.get_default_dtype() == torch.float32
    assert model.conv.weight.dtype == torch.float32
