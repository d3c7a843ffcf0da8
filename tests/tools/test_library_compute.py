"""What counts as a candidate's own kernel, from names as the compiler and the GPU's profiler print them."""

from collections.abc import Mapping

import pytest

from tools.kernel_resources import KernelResources
from tools.library_compute import bare, own_share, require_own_kernels, require_own_operators
from tools.results import Extension
from tools.subject import Returned
from tools.verdict import Verdict
from tools.workers import CandidateFault

CUDNN = "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true>(float const*)"
CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(Params)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"


def extension(*kernels: str) -> Extension:
    resources = tuple(KernelResources(name=name, registers=32) for name in kernels)
    return Extension(label="x", key="0", cached=True, seconds=0.0, path_taken="fast", kernels=resources)


def ran(launched: Mapping[str, tuple[int, int]]) -> Returned:
    return Returned(outputs=[], inputs=[], launched=dict(launched))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("conv", "conv"),
        ("void conv<3, float>(float const*, int)", "conv"),
        ("_Z4convILi3EEvPKfi", "conv"),
        ("_ZN12_GLOBAL__N_14convILi3EEEvPKf", "conv"),
        ("void (anonymous namespace)::conv<3>(float const*)", "conv"),
        ("void _GLOBAL__N__5d1c_7_cuda_cu_ab12::conv<3>(float const*)", "conv"),
        ("void ours::conv<(Kind)1>(ours::Arguments<float>)", "ours::conv"),
        (CUTLASS, "cutlass::Kernel2"),
    ],
)
def test_the_same_kernel_is_known_by_every_spelling(name: str, plain: str) -> None:
    assert bare(name) == plain


def test_own_kernels_and_copies_of_pytorch_are_fine() -> None:
    launched = {"void conv<3>(float const*)": (2, 900), FILL: (1, 100)}
    require_own_kernels(ran(launched), [extension("_Z4convILi3EEvPKf")], "here")


@pytest.mark.parametrize("foreign", [CUDNN, CUTLASS, "ampere_sgemm_128x64_nn", "triton_poi_fused_silu_0"])
def test_kernels_of_libraries_are_not(foreign: str) -> None:
    with pytest.raises(CandidateFault) as caught:
        require_own_kernels(ran({"conv(float*)": (1, 5), foreign: (3, 70)}), [extension("conv(float*)")], "B=1 L=7")
    assert caught.value.verdict is Verdict.LIBRARY_COMPUTE
    assert f"(B=1 L=7): {foreign[:120]} (3x)." in caught.value.message


@pytest.mark.parametrize("name", ["ampere_sgemm_128x64_nn", "sm90_xmma_fprop", "cutlass::Kernel2", "gemvNSP_kernel"])
def test_a_kernel_by_the_name_of_a_librarys_is_nobodys_own(name: str) -> None:
    """An unused kernel by that name would make cuBLAS the candidate's own."""
    with pytest.raises(CandidateFault):
        require_own_kernels(ran({f"void {name}<1>()": (1, 5)}), [extension("conv(float*)", f"{name}(float*)")], "here")


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        (FILL, True),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIter&)>(int)",
            True,
        ),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<float, 2>(float*)", True),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel>(int)",
            False,
        ),
        ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3>(float*)", False),
    ],
)
def test_kernels_of_pytorch_may_copy_but_not_compute(name: str, plain: bool) -> None:
    """C++ code can call them past the dispatcher, where no operator is recorded."""
    launched = {"conv(float*)": (1, 5), name: (1, 5)}
    if plain:
        require_own_kernels(ran(launched), [extension("conv(float*)")], "here")
        return
    with pytest.raises(CandidateFault):
        require_own_kernels(ran(launched), [extension("conv(float*)")], "here")


def test_a_namesake_in_another_namespace_is_foreign() -> None:
    with pytest.raises(CandidateFault):
        require_own_kernels(ran({"void cudnn::conv<1>()": (1, 5)}), [extension("conv(float*)")], "here")


def test_where_the_compiler_named_no_kernel_nothing_is_told() -> None:
    require_own_kernels(ran({CUDNN: (1, 5)}), [extension()], "here")
    assert own_share(ran({CUDNN: (1, 5)}), [extension()]) is None


def test_the_share_is_of_time_not_of_launches() -> None:
    launched = {"conv(float*)": (1, 900), FILL: (8, 100)}
    assert own_share(ran(launched), [extension("conv(float*)")]) == pytest.approx(0.9)
    assert own_share(ran({}), [extension("conv(float*)")]) is None


def test_operators_that_compute_are_named_and_counted() -> None:
    require_own_operators({}, "here")
    with pytest.raises(CandidateFault, match=r"aten::conv1d \(2x\), aten::silu \(1x\)") as caught:
        require_own_operators({"aten::silu": 1, "aten::conv1d": 2}, "in timed calls")
    assert caught.value.verdict is Verdict.LIBRARY_COMPUTE
