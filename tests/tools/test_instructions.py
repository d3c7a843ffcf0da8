"""What disassemblers print is read: functions, instructions, their kinds, and the loop that matters."""

import time
from collections import Counter

import pytest
from sass_listings import LISTING, USAGE

from tools import host_code, sass
from tools.instructions import Instruction, densest, hottest_loop

SYMBOLS = """
extension.so:     file format elf64-x86-64

SYMBOL TABLE:
0000000000000000 l    df *ABS*	0000000000000000              host.cpp
000000000000c0e0 l     F .text	00000000000007a0              _Z11causal_convN3c105light6TensorES1_l._omp_fn.0
000000000000d3d0 g     F .text	0000000000000600              _Z11causal_convN3c105light6TensorES1_l
000000000000b000 g     F .text	0000000000000040              _Z5scalePfS_l
0000000000009000 w     F .text	0000000000000900              _ZNSt6vectorIfSaIfEE17_M_default_appendEm
000000000000a000 g     F .text	0000000000000100              kernelwright_empty
0000000000000000       F *UND*	0000000000000000              GOMP_parallel
0000000000040000 g     O .data	0000000000000008              _Z5table
"""

HOST_LISTING = """
0000000000001000 <_Z5scalePfS_l>:
    1000:\tvmovups zmm0,ZMMWORD PTR [rsi+rax*1]
    1007:\tvfmadd213ps zmm0,zmm3,ZMMWORD PTR [rdi+rax*1]
    100d:\tadd    rax,0x40
    1011:\tcmp    rcx,rax
    1014:\tjne    1000 <_Z5scalePfS_l>
    1016:\tvmovss xmm0,DWORD PTR [rdi]        # 2000 <x>
    101a:\tvfmadd213ss xmm0,xmm2,DWORD PTR [r15]
    1020:\tvfmadd213ss xmm0,xmm2,DWORD PTR [r15+0x4]
    1026:\tjmp    1016 <_Z5scalePfS_l+0x16>
    1028:\tret
"""


def test_kernels_are_listed_by_their_mangled_names_once() -> None:
    assert sass.function_names(USAGE + USAGE) == [
        "_ZN36_GLOBAL__N__cf51e33d_4_t_cu_ab0bdee212scale_kernelILi128EEEvPfi",
        "_Z11pack_kernelPKfPf",
    ]


def test_sass_is_read_without_its_padding() -> None:
    code = sass.parse(LISTING)
    assert [each.address for each in code] == list(range(0, 0xA0, 0x10))
    assert code[6].text == "@!UP0 HMMA.1688.F32.TF32 R4, R8, R10, R4"
    assert code[7].jumps_to == 0x30
    assert sass.architecture(LISTING) == "sm_90a"
    kinds = Counter(map(sass.kind, code))
    assert kinds["LDG.128"] == kinds["LDS"] == kinds["STG.64"] == kinds["HMMA"] == kinds["FFMA"] == 1
    assert kinds["EXIT"] == 2


def test_the_loop_of_sass_is_what_lies_before_the_jump_back() -> None:
    loop = hottest_loop(sass.parse(LISTING))
    assert loop is not None
    assert [each.address for each in loop] == [0x30, 0x40, 0x50, 0x60, 0x70]


def test_host_functions_are_the_candidates_own_threads_first() -> None:
    assert host_code.function_names(SYMBOLS) == [
        "_Z11causal_convN3c105light6TensorES1_l._omp_fn.0",
        "_Z11causal_convN3c105light6TensorES1_l",
        "_Z5scalePfS_l",
    ]


def test_a_vector_loop_counts_more_than_a_longer_scalar_one() -> None:
    code = host_code.parse(HOST_LISTING)
    assert code[5].text == "vmovss xmm0,DWORD PTR [rdi]"
    assert Counter(map(host_code.kind, code))["vfmadd213ss xmm"] == 2
    loop = hottest_loop(code)
    assert loop is not None
    assert (loop[0].address, loop[-1].address) == (0x1000, 0x1014)


def instruction(number: int, mnemonic: str, jumps_to: int | None = None) -> Instruction:
    return Instruction(number, mnemonic, mnemonic, jumps_to)


def test_only_innermost_loops_are_shown() -> None:
    code = [
        *(instruction(0, "FFMA"), instruction(1, "FFMA"), instruction(2, "MOV")),
        *(instruction(3, "FFMA"), instruction(4, "BRA", 3), instruction(5, "FFMA"), instruction(6, "BRA", 1)),
    ]
    loop = hottest_loop(code)
    assert loop is not None
    assert [each.address for each in loop] == [3, 4]


def test_code_without_arithmetic_in_loops_has_no_hottest() -> None:
    assert hottest_loop([instruction(0, "MOV"), instruction(1, "BRA", 0), instruction(2, "FFMA")]) is None


@pytest.mark.parametrize(("count", "first"), [(2, 3), (4, 2), (50, 0)])
def test_the_densest_part_is_found(count: int, first: int) -> None:
    names = ["FFMA", "MOV", "MOV", "HMMA.1688", "FFMA", "FFMA", "MOV"]
    part = densest([instruction(at, name) for at, name in enumerate(names)], count)
    assert part[0].address == first
    assert len(part) == min(count, len(names))


def test_a_function_of_very_many_loops_is_looked_through_in_no_time() -> None:
    code = [
        Instruction(4 * at, "jne", f"jne {4 * at - 8}", max(0, 4 * at - 8))
        if at % 2
        else Instruction(4 * at, "vfmadd213ps", "vfmadd213ps ymm0, ymm1, ymm2", None)
        for at in range(60_000)
    ]
    began = time.process_time()
    loop = hottest_loop(code)
    assert loop is not None
    assert len(loop) == 2, "the first jump goes back to the first instruction; it holds no other"
    assert len(densest(code, 120)) == 120
    assert time.process_time() - began < 20, "each loop compared with each other took minutes"
