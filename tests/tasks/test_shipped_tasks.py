"""The four problems are the ones of the seed transcripts, and do what their facts state."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tasks.kernelbench import derive_facts
from tasks.loader import Task, all_tasks, find_task
from tasks.spec import Precision, Target

SHAPES = {
    "causal_conv": (32, 256, 8192),
    "conv_groupnorm": (16, 128, 1024),
    "depthwise_separable": (16, 128, 2048),
    "prenorm_dilated_residual": (32, 256, 4096),
    "prenorm_dilated_residual_eval": (32, 256, 4096),
}
TASKS = pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)


def model_of(task: Task) -> nn.Module:
    """The reference in float64 with every parameter and buffer random, so that no default hides a mistake."""
    reference = task.load()
    torch.manual_seed(0)
    model = reference.model_class(*reference.init_inputs).double().train(task.mode == "train")
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 1.5)
    return model


@torch.no_grad()
def call(model: nn.Module, x: Tensor) -> Tensor:
    out = model(x)
    assert isinstance(out, Tensor)
    return out


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def by_hand(x: Tensor, weight: Tensor, left: int, dilation: int) -> Tensor:
    """A convolution of (N, C, L) written as sums of shifted products, taps (O, C, K), zeros outside."""
    length = x.shape[-1]
    out = torch.zeros(x.shape[0], weight.shape[0], length, dtype=x.dtype)
    for tap in range(weight.shape[-1]):
        shift = tap * dilation - left
        first, last = max(0, -shift), min(length, length - shift)
        if first < last:
            seen = x[:, :, first + shift : last + shift]
            out[:, :, first:last] += torch.einsum("oc,ncl->nol", weight[:, :, tap], seen)
    return out


@TASKS
def test_get_inputs_gives_the_benchmark_shape_of_cuda(task: Task) -> None:
    (x,) = task.load().get_inputs()
    assert tuple(x.shape) == SHAPES[task.name]
    sizes = task.facts.benchmark_sizes(Target.CUDA)
    assert tuple(sizes.get(str(dim), dim) for dim in task.facts.inputs[0].dims) == SHAPES[task.name]
    assert x.dtype is torch.float32


@TASKS
def test_precision_is_pytorchs_own(task: Task) -> None:
    assert task.facts.precision_on(Target.CUDA) is Precision.TF32
    assert task.facts.precision_on(Target.CPU) is Precision.FP32


@TASKS
def test_the_smallest_shape_runs(task: Task) -> None:
    least = {axis.name: axis.minimum for axis in task.facts.axes}
    shape = [least.get(str(dim), dim) for dim in task.facts.inputs[0].dims]
    assert call(model_of(task), randn(*[int(size) for size in shape])).shape[-1] == least["L"]


@TASKS
def test_stated_facts_agree_with_probing(task: Task) -> None:
    derived = derive_facts(task.source, task.path)
    smallest: Any = {axis.name: (axis.cuda, axis.minimum, axis.multiple_of) for axis in derived.axes}
    assert smallest == {axis.name: (axis.cuda, axis.minimum, axis.multiple_of) for axis in task.facts.axes}
    assert derived.inputs == task.facts.inputs
    assert derived.state == task.facts.state


@TASKS
def test_state_is_what_training_changes(task: Task) -> None:
    model = model_of(task)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    call(model, randn(2, *task.load().get_inputs()[0].shape[1:-1], 8))
    changed = tuple(name for name, buffer in model.named_buffers() if not torch.equal(buffer, before[name]))
    assert changed == (task.facts.state if task.mode == "train" else ())


def test_causal_conv_by_hand() -> None:
    task = find_task("causal_conv")
    model = model_of(task)
    x = randn(2, 256, 7)
    expected = by_hand(x, model.state_dict()["conv.weight"], left=3, dilation=1)
    torch.testing.assert_close(call(model, x), expected)


def test_causal_conv_sees_no_future() -> None:
    model = model_of(find_task("causal_conv"))
    x = randn(1, 256, 32)
    changed = x.clone()
    changed[:, :, 20:] += 1
    before, after = call(model, x), call(model, changed)
    torch.testing.assert_close(after[:, :, :20], before[:, :, :20])
    assert (after[:, :, 20:] - before[:, :, 20:]).abs().min() > 1


def test_conv_groupnorm_by_hand() -> None:
    model = model_of(find_task("conv_groupnorm"))
    x = randn(2, 128, 5)
    state = model.state_dict()
    convolved = by_hand(x, state["conv.weight"], left=1, dilation=1)
    groups = convolved.reshape(2, 32, 8 * 5)
    centred = groups - groups.mean(2, keepdim=True)
    normal = (centred / (centred.square().mean(2, keepdim=True) + 1e-5).sqrt()).reshape(2, 256, 5)
    expected = normal * state["norm.weight"][:, None] + state["norm.bias"][:, None]
    torch.testing.assert_close(call(model, x), expected)


def test_depthwise_separable_by_hand() -> None:
    model = model_of(find_task("depthwise_separable"))
    x = randn(2, 128, 11)
    state = model.state_dict()
    depthwise = by_hand(x, torch.diag_embed(state["dw.weight"][:, 0].T).permute(1, 2, 0), left=4, dilation=2)
    activated = depthwise / (1 + torch.exp(-depthwise))
    expected = torch.einsum("oc,ncl->nol", state["pw.weight"][:, :, 0], activated)
    torch.testing.assert_close(call(model, x), expected)


def test_prenorm_dilated_residual_by_hand() -> None:
    model = model_of(find_task("prenorm_dilated_residual"))
    x = randn(2, 256, 200)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    mean, centred = x.mean((0, 2)), x - x.mean((0, 2), keepdim=True)
    variance = centred.square().mean((0, 2))
    normal = centred / (variance[:, None] + 1e-5).sqrt() * state["bn.weight"][:, None] + state["bn.bias"][:, None]
    expected = x + by_hand(normal.clamp(min=0), state["conv.weight"], left=128, dilation=128)
    torch.testing.assert_close(call(model, x), expected + state["conv.bias"][:, None])
    after = model.state_dict()
    torch.testing.assert_close(after["bn.running_mean"], 0.9 * state["bn.running_mean"] + 0.1 * mean)
    torch.testing.assert_close(after["bn.running_var"], 0.9 * state["bn.running_var"] + 0.1 * variance * 400 / 399)
    assert int(after["bn.num_batches_tracked"]) == 1


def test_prenorm_dilated_residual_eval_by_hand() -> None:
    model = model_of(find_task("prenorm_dilated_residual_eval"))
    x = randn(1, 256, 150)
    state = model.state_dict()
    scale = state["bn.weight"] / (state["bn.running_var"] + 1e-5).sqrt()
    normal = (x - state["bn.running_mean"][:, None]) * scale[:, None] + state["bn.bias"][:, None]
    expected = x + by_hand(normal.clamp(min=0), state["conv.weight"], left=128, dilation=128)
    torch.testing.assert_close(call(model, x), expected + state["conv.bias"][:, None])
