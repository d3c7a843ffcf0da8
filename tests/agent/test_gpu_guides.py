"""On an NVIDIA GPU: the complete kernels of the guides compute what PyTorch computes in float64."""

import ctypes
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from agent.guides.shelf import read_guide
from tools import process
from tools.toolchain import find_toolchain

pytestmark = [pytest.mark.gpu, pytest.mark.nvcc]

COMPLETE = re.compile(r"^```cuda complete\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def compiled(folder: Path, guide: str, number: int, launcher: str) -> ctypes.CDLL:
    """The fragment of a guide with a launcher `run` added to it, as a library."""
    body = COMPLETE.findall(read_guide(guide))[number]
    (folder / "fragment.cu").write_text(
        f'{body}\nextern "C" int run({launcher}\n    return cudaDeviceSynchronize();\n}}\n'
    )
    chain = find_toolchain()
    argv = [chain.nvcc, "-ccbin", chain.host_compiler, f"-arch=sm_{chain.architecture.replace('.', '')}", "-O3"]
    argv += ["-shared", "-Xcompiler", "-fPIC", "fragment.cu", "-o", "fragment.so"]
    done = process.run(argv, cwd=folder, timeout_s=120.0)
    assert done.returncode == 0, done.output
    return ctypes.CDLL(str(folder / "fragment.so"))


def call(library: ctypes.CDLL, *arguments: Tensor | int | float) -> None:
    given = [
        ctypes.c_void_p(each.data_ptr())
        if isinstance(each, Tensor)
        else ctypes.c_float(each)
        if isinstance(each, float)
        else ctypes.c_int(each)
        for each in arguments
    ]
    torch.cuda.synchronize()
    assert library.run(*given) == 0


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(sum(shape)), device="cuda")


def relative(output: Tensor, exact: Tensor) -> float:
    return float((output.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


@pytest.mark.parametrize(("length", "dilation"), [(1, 1), (63, 1), (200, 3), (1000, 16)])
def test_implicit_gemm(tmp_path: Path, length: int, dilation: int) -> None:
    library = compiled(
        tmp_path,
        "implicit-gemm",
        0,
        "const float* x, const float* w, const float* b, float* out, int samples, int channels, int outputs,"
        " int length, int padding, int dilation) {\n"
        "    cudaFuncSetAttribute(conv_kernel<3>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);\n"
        "    dim3 grid((length + 63) / 64, (outputs + 63) / 64, samples);\n"
        "    conv_kernel<3><<<grid, 128, shared_bytes(3, dilation)>>>(x, w, b, out, channels, outputs, length,\n"
        "        length, padding, dilation, row_stride(3, dilation));",
    )
    x, weight, bias = drawn(2, 20, length), drawn(70, 20, 3), drawn(70)
    out = torch.full((2, 70, length), torch.nan, device="cuda")
    call(library, x, weight, bias, out, 2, 20, 70, length, 2 * dilation, dilation)
    padded = functional.pad(x.double(), (2 * dilation, 0))
    exact = functional.conv1d(padded, weight.double(), bias.double(), dilation=dilation)
    assert relative(out, exact) < 5e-4


@pytest.mark.parametrize("length", [4, 1000, 1024, 5000])
def test_cp_async(tmp_path: Path, length: int) -> None:
    launcher = (
        "const float* x, float* out, int rows, int length, int taps) {\n"
        "    box_kernel<<<rows, THREADS>>>(x, out, length, taps);"
    )
    library = compiled(tmp_path, "pipelines", 0, launcher)
    x = drawn(3, length)
    out = torch.full_like(x, torch.nan)
    call(library, x, out, 3, length, 7)
    padded = functional.pad(x.double(), (6, 0))[:, None]
    exact = functional.conv1d(padded, torch.ones(1, 1, 7, dtype=torch.float64, device="cuda"))[:, 0]
    assert relative(out, exact) < 1e-6


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0), reason="TMA needs Hopper"
)
@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_tma(tmp_path: Path, tiles: int) -> None:
    launcher = (
        "const float* x, float* sums, int rows, int length) {\n    row_sums_kernel<<<rows, 256>>>(x, sums, length);"
    )
    library = compiled(tmp_path, "pipelines", 1, launcher)
    x, sums = drawn(5, tiles * 1024), torch.zeros(5, device="cuda")
    call(library, x, sums, 5, tiles * 1024)
    assert relative(sums, x.double().sum(1)) < 1e-5


@pytest.mark.parametrize("length", [1, 3, 511, 512, 2050])
def test_depthwise(tmp_path: Path, length: int) -> None:
    library = compiled(
        tmp_path,
        "depthwise",
        0,
        "const float* x, const float* w, const float* b, float* out, int samples, int channels, int length) {\n"
        "    dim3 grid((length + 511) / 512, channels, samples);\n"
        "    causal_depthwise_kernel<4><<<grid, THREADS>>>(x, w, b, out, channels, length);",
    )
    x, weight, bias = drawn(2, 6, length), drawn(6, 1, 4), drawn(6)
    out = torch.full_like(x, torch.nan)
    call(library, x, weight, bias, out, 2, 6, length)
    padded = functional.pad(x.double(), (3, 0))
    exact = functional.silu(functional.conv1d(padded, weight.double(), bias.double(), groups=6))
    assert relative(out, exact) < 1e-5


@pytest.mark.parametrize("length", [1, 37, 1024])
def test_group_norm(tmp_path: Path, length: int) -> None:
    library = compiled(
        tmp_path,
        "fused-normalisation",
        0,
        "const float* x, const float* w, const float* b, float* out, int samples, int groups, int each, int length,"
        " float eps) {\n"
        "    group_norm_kernel<<<samples * groups, 256>>>(x, w, b, out, groups, each, length, eps);",
    )
    x, weight, bias = drawn(3, 12, length) + 30.0, drawn(12), drawn(12)
    out = torch.full_like(x, torch.nan)
    call(library, x, weight, bias, out, 3, 4, 3, length, 1e-5)
    exact = functional.group_norm(x.double(), 4, weight.double(), bias.double(), 1e-5)
    assert relative(out, exact) < 1e-4


@pytest.mark.parametrize(("length", "dilation"), [(1, 1), (300, 5), (1000, 128)])
def test_dilated_with_a_prologue(tmp_path: Path, length: int, dilation: int) -> None:
    library = compiled(
        tmp_path,
        "causal-dilated",
        0,
        "const float* x, const float* w, const float* scale, const float* shift, float* out, int samples, int channels,"
        " int length, int dilation) {\n"
        "    dim3 grid((length + 255) / 256, channels, samples);\n"
        "    dilated_depthwise_kernel<<<grid, 128, 4 * (256 + 2 * dilation)>>>(x, w, scale, shift, out, channels,\n"
        "        length, 3, dilation, dilation);",
    )
    x, weight, scale, shift = drawn(2, 5, length), drawn(5, 1, 3), drawn(5), drawn(5)
    out = torch.full_like(x, torch.nan)
    call(library, x, weight, scale, shift, out, 2, 5, length, dilation)
    staged = torch.relu(x.double() * scale.double()[:, None] + shift.double()[:, None])
    exact = functional.conv1d(staged, weight.double(), padding=dilation, dilation=dilation, groups=5)
    assert float((out.double() - exact).abs().max()) < 1e-5 * max(1.0, float(exact.abs().max()))


def test_the_smallest_candidate(tmp_path: Path) -> None:
    launcher = "const float* x, float* out, int count) {\n    scale(x, out, count, 2.5, 0);"
    library = compiled(tmp_path, "building-fast", 0, launcher)
    x = drawn(1001)
    out = torch.full_like(x, torch.nan)
    call(library, x, out, 1001)
    assert torch.equal(out, x * 2.5)
