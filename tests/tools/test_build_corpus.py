"""The corpus of build candidates: each fits its task without being built, and together they have what models use."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

from tasks.loader import find_task, task_names
from tools.candidate import Candidate
from tools.inline_request import InlineRequest

FOLDER = Path(__file__).resolve().parents[1] / "candidates" / "builds"
FILES = sorted(FOLDER.glob("*.py"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in FILES}
_EVERY_FILE = pytest.mark.parametrize("name", TEXTS)

# What models write, as regular expressions: somewhere in the corpus each of them stands.
USED = r"""
AT_DISPATCH_FLOATING_TYPES\(
AT_DISPATCH_FLOATING_TYPES_AND_HALF\(
AT_DISPATCH_FLOATING_TYPES_AND2\(
template <typename scalar_t
template <int \w+>
cooperative_groups\.h
cooperative_groups/reduce\.h
grid\.sync\(\)
cudaLaunchCooperativeKernel
mma\.h
precision::tf32
cub/block/block_reduce\.cuh
cuda_fp16\.h
__half2\b
cuda_bf16\.h
__nv_bfloat16
#define CHECK_CUDA\(
#define CHECK_CONTIGUOUS\(
#define CHECK_INPUT\(
#define \w+ \d+
at::cuda::getCurrentCUDAStream\(\)
c10::cuda::getCurrentCUDAStream\(\)
c10::cuda::CUDAGuard
at::cuda::CUDAGuard
at::cuda::OptionalCUDAGuard
auto \w+ = \[&\]\(auto
__constant__
cudaMemcpyToSymbolAsync
PYBIND11_MODULE
py::arg\(
PackedTensorAccessor32
\.accessor<
c10::optional<torch::Tensor>
std::optional<torch::Tensor>
std::vector<torch::Tensor>
std::tuple<torch::Tensor
extern __shared__
cudaFuncSetAttribute
__launch_bounds__
__restrict__
cp\.async
mma\.sync
static __device__
\bconstexpr \w+ \w+\[\w*\] =
if constexpr
namespace \{
^namespace \w+ \{
extern "C" __global__
#include <torch/extension\.h>
#include <torch/torch\.h>
#include <ATen/ATen\.h>
#include <ATen/cuda/CUDAContext\.h>
#include <ATen/cuda/Exceptions\.h>
#include <c10/cuda/CUDAException\.h>
#include <c10/cuda/CUDAGuard\.h>
C10_CUDA_KERNEL_LAUNCH_CHECK
C10_CUDA_CHECK
AT_CUDA_CHECK
cudaGetLastError\(\)
torch::empty\(
torch::zeros\(
torch::empty_like\(
torch::full\(
torch::ones\(
at::zeros\(
torch::TensorOptions\(\)\.dtype\(torch::kFloat32\)\.device\(
options\(\)\.dtype\(at::kHalf\)
\.contiguous\(\)
\.view\(
\.reshape\(
\.transpose\(
\.permute\(
\.unsqueeze\(
\.slice\(
\.narrow\(
\.select\(
\.to\(
const_data_ptr<
mutable_data_ptr<
\.sizes\(\)\.vec\(\)
\.size\(-1\)
\.stride\(
\.is_cuda\(\)
\.device\(\)\.type\(\)
\.scalar_type\(\)
\.dtype\(\)
\.numel\(\)
\.dim\(\)
\.defined\(\)
\.nbytes\(\)
\.element_size\(\)
\.get_device\(\)
\.zero_\(\)
\.copy_\(
std::min<int64_t>\(
std::max<int64_t>\(
\bprintf\(
\bassert\(
-use_fast_math
-lineinfo
-std=c\+\+
""".split("\n")[1:-1]  # noqa: SIM905  a list of quoted patterns is harder to read


class Builds:
    """Stands in for `load_inline`, builds nothing, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.requests: list[InlineRequest] = []

    def __call__(
        self,
        name: str,
        cpp_sources: str | list[str],
        cuda_sources: str | list[str],
        functions: str | list[str] | dict[str, str] | None = None,
        extra_cflags: list[str] | None = None,
        extra_cuda_cflags: list[str] | None = None,
        with_cuda: bool | None = None,
        verbose: bool = False,
    ) -> Any:
        """Note one call."""
        del with_cuda, verbose

        def several(value: str | list[str] | None) -> tuple[str, ...]:
            return (value,) if isinstance(value, str) else tuple(value or ())

        named = functions if isinstance(functions, dict) else dict.fromkeys(several(functions), "")
        self.requests.append(
            InlineRequest(
                name=name,
                cpp_sources=several(cpp_sources),
                cuda_sources=several(cuda_sources),
                functions=None if functions is None else named,
                extra_cflags=several(extra_cflags),
                extra_cuda_cflags=several(extra_cuda_cflags),
            )
        )
        return object()


def stated_task(text: str) -> str:
    """The task that a candidate's docstring names."""
    found = re.findall(r"^Task: (\w+)$", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE)
    assert len(found) == 1, "the docstring must hold one line such as Task: causal_conv"
    return str(found[0])


def constructed(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.nn.Module, Builds]:
    """The candidate's model for its task, and what building it asks for; nothing is compiled."""
    builds = Builds()
    monkeypatch.setattr(cpp_extension, "load_inline", builds)
    names: dict[str, Any] = {"__name__": name}
    exec(compile(TEXTS[name], f"{name}.py", "exec"), names)
    model = names["ModelNew"](*find_task(stated_task(TEXTS[name])).load().init_inputs)
    if not builds.requests:
        with pytest.raises(AttributeError):
            model(torch.zeros(1))
    return model, builds


def test_there_are_thirty_and_no_two_are_alike() -> None:
    assert len(TEXTS) >= 30
    assert len({Candidate(text).id for text in TEXTS.values()}) == len(TEXTS)
    assert len({(ast.get_docstring(ast.parse(text)) or "").splitlines()[0] for text in TEXTS.values()}) == len(TEXTS)


def test_every_task_is_there() -> None:
    assert {stated_task(text) for text in TEXTS.values()} == set(task_names())


@pytest.mark.parametrize("pattern", USED)
def test_what_models_use_is_there(pattern: str) -> None:
    assert any(re.search(pattern, text, re.MULTILINE) for text in TEXTS.values()), pattern


@_EVERY_FILE
def test_it_holds_the_parameters_of_its_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = find_task(stated_task(TEXTS[name])).load()
    model, _ = constructed(name, monkeypatch)
    state = reference.model_class(*reference.init_inputs).state_dict()
    assert {key: value.shape for key, value in model.state_dict().items()} == {
        key: value.shape for key, value in state.items()
    }


@_EVERY_FILE
def test_it_asks_for_one_extension_with_pytorch_in_the_cuda_source(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, builds = constructed(name, monkeypatch)
    (request,) = builds.requests
    cuda = "\n".join(request.cuda_sources)
    assert "#include <torch/extension.h>" in cuda
    assert "__global__" in cuda
    if request.functions is None:
        assert "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)" in cuda
    for function in request.functions or {}:
        declared = "\n".join(request.cpp_sources)
        assert re.search(rf"\b{function}\(", declared), f"{function} is not declared in cpp_sources"
        assert re.search(rf"\b{function}\([^;{{]*\)\s*\{{", cuda), f"{function} is not defined in cuda_sources"
