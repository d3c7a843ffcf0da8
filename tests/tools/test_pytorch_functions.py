"""What functions of PyTorch do is told by their mangled names, which are those of the symbol table of libtorch_cpu."""

import pytest

from tools.pytorch_functions import computes

NATIVE = "_ZN2at6native12_GLOBAL__N_1"
LOOP = "_ZN3c1012function_refIFvPPcPKlllEE11callback_fnIZN2at18TensorIteratorBase15loop_2d_from_1dIZZZNS8_6native"


@pytest.mark.parametrize(
    "function",
    [
        f"{NATIVE}11silu_kernelERNS_18TensorIteratorBaseE",
        f"{NATIVE}18addcmul_cpu_kernelERNS_18TensorIteratorBaseERKN3c106ScalarE",
        f"{NATIVE}22scatter_add_cpu_kernelERKNS_6TensorElS4_S4_",
        f"{NATIVE}21masked_scatter_kernelERNS_14TensorIteratorERKNS_10TensorBaseE",
        f"{NATIVE}28gather_expanded_index_kernelERKNS_6TensorES4_S4_",
        f"{NATIVE}33cpu_scatter_reduce_expanded_indexIfLNS0_13ReductionTypeE0EEEvRKNS_6TensorES6_S6_b",
        f"{LOOP}12_GLOBAL__N_130cpu_scatter_gather_base_kernelILb1EEclINSC_9ReduceAddEEEvRKNS8_6TensorElSJ_SJ_",
        "mkl_blas_avx512_sgemm_kernel_0",
    ],
)
def test_what_adds_or_chooses_computes(function: str) -> None:
    """The `cat` in `scatter` and the `expand` in `expanded` excused all of these once."""
    assert computes(function)


@pytest.mark.parametrize(
    "function",
    [
        f"{NATIVE}18direct_copy_kernelERNS_18TensorIteratorBaseE",
        f"{NATIVE}11fill_kernelERNS_14TensorIteratorERKN3c106ScalarE",
        f"{NATIVE}17cat_serial_kernelERKNS_6TensorERKSt6vectorISt17reference_wrapperIS3_ESaIS7_EEl",
        f"{NATIVE}19stack_serial_kernelERNS_6TensorEN3c108ArrayRefIS2_EEl",
        f"{NATIVE}13arange_kernelERNS_14TensorIteratorERKN3c106ScalarES7_S7_",
        f"{LOOP}7DEFAULTL11copy_kernelERNS8_14TensorIteratorEbENKUlvE_clEv",
        "_ZN2at6native8_to_copyERKNS_6TensorE",
        "_ZN6fbgemm21Float16ToFloat_avx512EPKtPfm",
        "_ZN3c1010TensorImplD0Ev",
        "",
    ],
)
def test_what_allocates_copies_or_fills_does_not(function: str) -> None:
    assert not computes(function)
