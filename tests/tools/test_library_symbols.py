"""Which undefined symbols of an object mean that a library computes; the lines are as GNU nm 2.40 prints them."""

import pytest

from tools.library_symbols import computing_symbols


def listing(*names: str) -> str:
    return "main.o:\n" + "".join(f"                 U {name}\n" for name in names)


@pytest.mark.parametrize(
    ("symbol", "called"),
    [
        ("at::cpu::silu(at::Tensor const&)", "at::cpu::silu"),
        ("at::cuda::convolution_overrideable(at::Tensor const&, long)", "at::cuda::convolution_overrideable"),
        ("at::native::silu_out(at::Tensor const&, at::Tensor&)", "at::native::silu_out"),
        ("at::_ops::conv1d::redispatch(c10::DispatchKeySet, at::Tensor const&)", "at::_ops::conv1d::redispatch"),
        ("void at::cuda::blas::gemm<float>(char, char)", "at::cuda::blas::gemm<float>"),
        ("sgemm_@LIBBLAS_3", "sgemm_"),
        ("at::cuda::blas::bgemm(char, char)", "at::cuda::blas::bgemm"),
        ("cublasSgemm_v2", "cublasSgemm_v2"),
        ("cublasLtMatmul", "cublasLtMatmul"),
        ("cudnnConvolutionForward", "cudnnConvolutionForward"),
        ("cblas_sgemm", "cblas_sgemm"),
        ("sgemm_", "sgemm_"),
        ("dnnl_primitive_execute", "dnnl_primitive_execute"),
    ],
)
def test_what_computes_past_the_dispatcher(symbol: str, called: str) -> None:
    assert computing_symbols(listing(symbol)) == (called,)


@pytest.mark.parametrize(
    "symbol",
    [
        "at::_ops::conv1d::call(at::Tensor const&)",
        "at::_ops::zero_::redispatch(c10::DispatchKeySet, at::Tensor&)",
        "at::cpu::empty(c10::ArrayRef<long>, c10::TensorOptions)",
        "at::cuda::getCurrentCUDAStream(signed char)",
        "at::cuda::getCurrentDeviceProperties()",
        "at::TensorBase::data_ptr() const",
        "cublasCreate_v2",
        "cudnnSetStream",
        "cudaLaunchKernel",
        "expf",
        "my_sgemm_kernel(float*)",
    ],
)
def test_what_does_not(symbol: str) -> None:
    """Operators by way of the dispatcher are seen when they run; allocation and copies are fine."""
    assert computing_symbols(listing(symbol)) == ()


def test_a_listing_of_empty_lines_does_not_take_minutes() -> None:
    """Symbols are the candidate's text: 16,000 empty lines once took 3 s, and a listing may have 4 million."""
    assert computing_symbols("\n" * 200_000 + " U cblas_sgemm\n") == ("cblas_sgemm",)
