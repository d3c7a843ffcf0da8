"""On an NVIDIA GPU: what a profile says about kernels whose form, bytes and occupancy are known beforehand."""

import re
from collections.abc import Iterator

import pytest
import torch
from judging import message_of, task_of
from shipped_candidates import CUDA

from tasks.loader import find_task
from tasks.spec import Precision, Target
from tools.candidate import Candidate
from tools.describe import describe
from tools.judge import Judge
from tools.machine import machine
from tools.profile_results import KernelProfile, Profiled
from tools.results import Timed

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SAMPLES, CHANNELS, LENGTH = 8, 64, 65536
COUNT = SAMPLES * CHANNELS * LENGTH
"""134 MB, more than any L2."""
INPUTS = f"""

def get_inputs():
    return [torch.randn({SAMPLES}, {CHANNELS}, {LENGTH})]


def get_init_inputs():
    return []
"""
DOUBLED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0
"""

TWO_KERNELS = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void copy_kernel(const float* x, float* out, long long count) {
    __shared__ float line[4096];
    long long at = blockIdx.x * 128ll + threadIdx.x;
    line[threadIdx.x] = at < count ? x[at] : 0.0f;
    __syncthreads();
    if (at < count) out[at] = line[threadIdx.x];
}

__global__ void double_kernel(const float* x, float* out, long long count) {
    extern __shared__ float line[];
    long long at = blockIdx.x * 256ll + threadIdx.x;
    line[threadIdx.x] = at < count ? x[at] : 0.0f;
    if (at < count) out[at] = 2.0f * line[threadIdx.x];
}

void run(const float* x, float* between, float* out, long long count, long long stream) {
    copy_kernel<<<(count + 127) / 128, 128, 0, (cudaStream_t)stream>>>(x, between, count);
    double_kernel<<<(count + 255) / 256, 256, 40960, (cudaStream_t)stream>>>(between, out, count);
}
"""
extension = load_inline(
    name="doubled",
    cpp_sources="void run(const float*, float*, float*, long long, long long);",
    cuda_sources=CUDA,
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        between, out = torch.empty_like(x), torch.empty_like(x)
        extension.run(x, between, out, x.numel(), torch.cuda.current_stream().cuda_stream)
        return out
'''


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(task_of(tmp_path_factory.mktemp("doubled"), DOUBLED, INPUTS), Target.CUDA) as judge:
        yield judge


@pytest.fixture(scope="module")
def profiled(judge: Judge) -> Profiled:
    result = judge.profile(Candidate(TWO_KERNELS))
    assert isinstance(result, Profiled), message_of(result)
    return result


def kernel(profiled: Profiled, name: str) -> KernelProfile:
    (found,) = (each for each in profiled.kernels if name in each.name)
    return found


def test_grid_block_and_shared_memory_are_those_of_the_launch(profiled: Profiled) -> None:
    assert len(profiled.kernels) == 2, profiled.kernels
    copy, double = kernel(profiled, "copy_kernel"), kernel(profiled, "double_kernel")
    assert (copy.grid, copy.block, copy.shared_bytes) == ((COUNT // 128, 1, 1), (128, 1, 1), 16384)
    assert (double.grid, double.block, double.shared_bytes) == ((COUNT // 256, 1, 1), (256, 1, 1), 40960)
    for each in (copy, double):
        assert each.launches == 1
        assert each.resources is not None
        assert each.registers is not None and each.registers >= each.resources.registers > 0


def test_times_are_those_that_the_bytes_allow(profiled: Profiled) -> None:
    peak = machine(Target.CUDA, Precision.FP32).peak_bytes_per_s
    assert peak is not None
    assert profiled.byte_count == 2 * 4 * COUNT
    for each in profiled.kernels:
        # Each reads and writes all of it once; nothing simple is six times slower than the memory.
        least_ns = 2 * 4 * COUNT / peak * 1e9
        assert least_ns < each.ns < 6 * least_ns, (each.name, each.ns, least_ns)
    assert sum(each.share for each in profiled.kernels) == pytest.approx(1.0, abs=0.05)
    assert profiled.call_ns is not None and profiled.busy_ns is not None
    assert sum(each.ns for each in profiled.kernels) == pytest.approx(profiled.busy_ns, rel=0.05)
    assert profiled.busy_ns <= profiled.call_ns


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="worked out for Hopper"
)
def test_occupancy_is_that_worked_out_by_hand(profiled: Profiled) -> None:
    copy, double = kernel(profiled, "copy_kernel").occupancy, kernel(profiled, "double_kernel").occupancy
    assert copy is not None and double is not None
    # 228 KiB hold 13 blocks of 16 KiB and 1 KiB that is reserved: 52 of 64 warps.
    assert (copy.blocks_per_sm, copy.warps_per_sm, copy.limited_by) == (13, 52, ("shared memory",))
    assert copy.share == pytest.approx(52 / 64)
    # And 5 of 40 KiB and 1 KiB: 40 of 64 warps.
    assert (double.blocks_per_sm, double.warps_per_sm, double.limited_by) == (5, 40, ("shared memory",))
    processors = torch.cuda.get_device_properties().multi_processor_count
    assert copy.waves == pytest.approx(COUNT / 128 / (13 * processors))


def test_counters_are_there_or_it_is_said_why_not(profiled: Profiled) -> None:
    counted = [each for each in profiled.kernels if each.counters is not None]
    assert bool(counted) != bool(profiled.counters_missing), profiled.counters_missing
    for each in counted:
        assert each.counters is not None
        if each.counters.dram_read_bytes is not None:
            assert each.counters.dram_read_bytes == pytest.approx(4 * COUNT, rel=0.2)
    print(describe(profiled))


def test_a_kernel_takes_as_long_as_the_benchmark_says() -> None:
    (row,) = (row for row in CUDA if row.file == "causal_naive.py")
    with Judge(find_task("causal_conv"), Target.CUDA) as judge:
        profiled = judge.profile(row.candidate)
        timed = judge.benchmark(row.candidate)
    assert isinstance(profiled, Profiled), message_of(profiled)
    assert isinstance(timed, Timed), message_of(timed)
    assert profiled.call_ns == pytest.approx(timed.median_ns, rel=0.15)
    assert re.match(r"causal_conv_kernel\b", profiled.kernels[0].name)
    assert profiled.kernels[0].share > 0.95


def test_a_launch_that_fails_is_told(judge: Judge) -> None:
    too_much = TWO_KERNELS.replace("256, 40960,", "256, 1 << 20,")
    for result in (judge.profile(Candidate(too_much)), judge.verify(Candidate(too_much))):
        assert "a kernel launch failed" in message_of(result), result
