"""CUDA extensions are really compiled; that needs nvcc and no GPU."""

import textwrap

import pytest

from tools.build import Builder, BuiltExtension
from tools.candidate import Candidate
from tools.compilation import BuildError
from tools.inline_request import InlineRequest
from tools.toolchain import find_toolchain

pytestmark = pytest.mark.nvcc

KERNEL = textwrap.dedent("""\
    __global__ void scale_kernel(float* x, int n) {
        __shared__ float tile[128];
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        tile[threadIdx.x] = i < n ? x[i] : 0.0f;
        __syncthreads();
        if (i < n) x[i] = tile[threadIdx.x ^ 1] * factor();
    }
    """)
LAUNCH = "void scale(float* x, int n) { scale_kernel<<<(n + 127) / 128, 128>>>(x, n); }\n"
FACTOR = "__device__ float factor() { return 2.0f; }\n"
BINDING = textwrap.dedent("""\
    void scale(float* x, int n);
    void run(torch::Tensor x) { scale(x.data_ptr<float>(), x.numel()); }
    """)


def build(cuda: str, function: str, text: str = "") -> BuiltExtension:
    request = InlineRequest(name="conv", cpp_sources=(BINDING,), cuda_sources=(cuda,), functions={function: ""})
    return Builder(find_toolchain()).build(request, Candidate(text))


def test_a_kernel_without_pytorch_is_built_without_its_headers_and_reported() -> None:
    report = build(FACTOR + KERNEL + LAUNCH, "run").report
    assert report.path_taken == "light"
    (kernel,) = report.kernels
    assert kernel.name == "scale_kernel"
    assert kernel.shared_bytes == 128 * 4
    assert 0 < kernel.registers < 64


def test_a_kernel_in_functions_is_explained() -> None:
    with pytest.raises(BuildError, match=r"names a __global__ kernel\. Python cannot launch a kernel") as caught:
        build(FACTOR + KERNEL + LAUNCH, "scale_kernel")
    assert "scale_kernel<<<grid, block>>>" in caught.value.message


def test_errors_of_nvcc_stand_at_the_candidates_lines_once() -> None:
    text = f'import torch\nCUDA_SOURCE = """\n{KERNEL}{LAUNCH}"""\n'
    with pytest.raises(BuildError, match="'conv' does not compile: 1 error") as caught:
        build(KERNEL + LAUNCH, "run", text)
    (error,) = (item for item in caught.value.diagnostics if item.severity == "error")
    assert error.message == 'identifier "factor" is undefined'
    assert error.line == 1 + text[: text.index("factor()")].count("\n")


def test_a_misspelled_name_is_shown_with_its_line_and_a_caret() -> None:
    """R24: a text with "block" in it was once taken for trouble with a lock, and nobody heard of the error."""
    cuda = FACTOR + KERNEL.replace("blockIdx.x", "blockIdxx.x") + LAUNCH
    text = f'import torch\nCUDA_SOURCE = """\n{cuda}"""\n'
    with pytest.raises(BuildError) as caught:
        build(cuda, "run", text)
    (error,) = (item for item in caught.value.diagnostics if item.severity == "error")
    assert error.message == 'identifier "blockIdxx" is undefined'
    assert error.line == 1 + text[: text.index("blockIdxx")].count("\n")
    source, caret = error.excerpt.splitlines()
    assert source.strip() == "const int i = blockIdxx.x * blockDim.x + threadIdx.x;"
    assert source[caret.index("^") :].startswith("blockIdxx")


WITH_TORCH = textwrap.dedent("""\
    #include <torch/extension.h>
    #include <ATen/cuda/CUDAContext.h>
    #include <c10/cuda/CUDAGuard.h>

    template <typename scalar_t, int width>
    __global__ void scale_kernel(torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x, float factor) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < x.size(1)) x[blockIdx.y][i] = static_cast<scalar_t>(static_cast<float>(x[blockIdx.y][i]) * factor);
    }

    torch::Tensor run(torch::Tensor x, double factor) {
        TORCH_CHECK(x.is_cuda() && x.dim() == 2, "x must be a matrix on the GPU, not ", x.sizes());
        const c10::cuda::CUDAGuard guard(x.device());
        auto y = x.clone();
        AT_DISPATCH_FLOATING_TYPES_AND_HALF(y.scalar_type(), "run", [&] {
            const dim3 grid((y.size(1) + 127) / 128, y.size(0));
            scale_kernel<scalar_t, 3><<<grid, 128, 0, at::cuda::getCurrentCUDAStream()>>>(
                y.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(), static_cast<float>(factor));
        });
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return y;
    }

    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, py::arg("x"), py::arg("factor") = 2.0); }
    """)


def test_the_usual_style_with_pytorchs_header_is_built_without_it() -> None:
    request = InlineRequest(name="conv", cuda_sources=(WITH_TORCH,), extra_cuda_cflags=("-O3",))
    report = Builder(find_toolchain()).build(request, Candidate(WITH_TORCH)).report
    assert report.path_taken == "light"
    kinds = sorted(kernel.name.split("(")[0].removeprefix("void ") for kernel in report.kernels)
    assert kinds == ["scale_kernel<c10::Half, 3>", "scale_kernel<double, 3>", "scale_kernel<float, 3>"]


def test_a_launcher_takes_the_current_stream_by_itself() -> None:
    launcher = "void scale(float* x, int n, cudaStream_t stream)"
    request = InlineRequest(
        name="conv",
        cpp_sources=(f"{launcher};",),
        cuda_sources=(f"{FACTOR}{KERNEL}{launcher} {{ scale_kernel<<<1, 128, 0, stream>>>(x, n); }}",),
        functions={"scale": ""},
    )
    assert Builder(find_toolchain()).build(request, Candidate("")).report.path_taken == "light"
