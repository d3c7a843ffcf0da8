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


def test_a_kernel_without_pytorch_takes_the_fast_path_and_is_reported() -> None:
    report = build(FACTOR + KERNEL + LAUNCH, "run").report
    assert report.path_taken == "fast"
    (kernel,) = report.kernels
    assert kernel.name == "scale_kernel"
    assert kernel.shared_bytes == 128 * 4
    assert 0 < kernel.registers < 64


def test_a_kernel_in_functions_is_explained() -> None:
    with pytest.raises(BuildError, match=r"names a __global__ kernel\. Python cannot launch a kernel") as caught:
        build(FACTOR + KERNEL + LAUNCH, "scale_kernel")
    assert "scale_kernel<<<grid, block>>>" in caught.value.message


def test_errors_of_nvcc_stand_at_the_candidates_lines_once() -> None:
    """A missing name could come from a header, so the plain path is tried, and only its errors are shown."""
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
