"""TF32 arithmetic is right in the class of that name only, and measured against PyTorch in the same class (R4)."""

from collections.abc import Iterator

import pytest
from judging import candidate_of, message_of, task_of, verdict_of

from tasks.loader import Task
from tasks.spec import Precision, Target
from tools.candidate import Candidate
from tools.describe import describe
from tools.judge import Judge
from tools.results import Fault, Timed, Verified
from tools.server_process import Processes
from tools.verdict import Verdict

PROBLEM = """
import torch
from torch import nn
from torch.nn import functional

from tasks.spec import Axis, InputSpec, Precision, TargetPrecision, TaskFacts

TASK = TaskFacts(
    name="wide",
    title="Conv1d with 64 channels",
    used_in="A test.",
    precision=TargetPrecision(cuda=Precision.CLASS, cpu=Precision.CLASS),
    axes=(Axis(name="N", cuda=16, cpu=2), Axis(name="L", cuda=8192, cpu=128)),
    inputs=(InputSpec(name="x", dims=("N", 64, "L")),),
    receptive_field=3,
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(64, 64, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(16, 64, 8192)]


def get_init_inputs():
    return []
"""
CALL = "return self.conv(x)"
# Ten bits of the mantissa stay; half of the last one is added, so that the rest rounds to the nearest.
ROUNDED = candidate_of(
    PROBLEM[: PROBLEM.index("from tasks")] + PROBLEM[PROBLEM.index("class Model") :],
    (
        CALL,
        "x, weight = ((v.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32) for v in (x, self.conv.weight))\n"
        "return functional.conv1d(x, weight, self.conv.bias, padding=1)",
    ),
)
TELLS = Candidate("import torch\nraise RuntimeError(f'TF32 {torch.backends.cudnn.allow_tf32}')\n")

TENSOR_CORES = Candidate('''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <c10/cuda/CUDAStream.h>

void launch(const float* x, const float* weight, const float* bias, float* out, int batch, int channels, int outputs,
            int length, cudaStream_t stream);

torch::Tensor convolution(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    torch::Tensor out = torch::empty({input.size(0), filter.size(0), input.size(2)}, input.options());
    launch(input.data_ptr<float>(), filter.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(),
           input.size(0), input.size(1), filter.size(0), input.size(2), c10::cuda::getCurrentCUDAStream());
    return out;
}
"""
CUDA = r"""
#include <mma.h>

using namespace nvcuda;

// One warp computes 16 outputs of 16 channels: a product of matrices for each of the three taps.
__global__ void convolution_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                                   const float* __restrict__ bias, float* __restrict__ out, int channels, int outputs,
                                   int length) {
    __shared__ float taps[16 * 8], values[8 * 16], sums[16 * 16];
    const int t0 = blockIdx.x * 16, o0 = blockIdx.y * 16, n = blockIdx.z;
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> c;
    wmma::fill_fragment(c, 0.0f);
    for (int tap = 0; tap < 3; ++tap) {
        for (int c0 = 0; c0 < channels; c0 += 8) {
            for (int i = threadIdx.x; i < 128; i += 32) {
                taps[i] = weight[((o0 + i / 8) * channels + c0 + i % 8) * 3 + tap];
                const int t = t0 + i % 16 + tap - 1;
                const bool inside = t >= 0 && t < length;
                values[i] = inside ? x[(static_cast<long long>(n) * channels + c0 + i / 16) * length + t] : 0.0f;
            }
            __syncwarp();
            wmma::load_matrix_sync(a, taps, 8);
            wmma::load_matrix_sync(b, values, 16);
            for (int i = 0; i < a.num_elements; ++i) a.x[i] = wmma::__float_to_tf32(a.x[i]);
            for (int i = 0; i < b.num_elements; ++i) b.x[i] = wmma::__float_to_tf32(b.x[i]);
            wmma::mma_sync(c, a, b, c);
            __syncwarp();
        }
    }
    wmma::store_matrix_sync(sums, c, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) {
        const int o = o0 + i / 16, t = t0 + i % 16;
        if (t < length) out[(static_cast<long long>(n) * outputs + o) * length + t] = sums[i] + bias[o];
    }
}

void launch(const float* x, const float* weight, const float* bias, float* out, int batch, int channels, int outputs,
            int length, cudaStream_t stream) {
    const dim3 grid((length + 15) / 16, outputs / 16, batch);
    convolution_kernel<<<grid, 32, 0, stream>>>(x, weight, bias, out, channels, outputs, length);
}
"""

extension = load_inline(name="convolution", cpp_sources=CPP, cuda_sources=CUDA, functions=["convolution"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(64, 64, 3, padding=1)

    def forward(self, x):
        return extension.convolution(x, self.conv.weight, self.conv.bias)
''')


@pytest.fixture(scope="module", params=[Precision.FP32, Precision.TF32])
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Task:
    text = PROBLEM.replace("CLASS", request.param.name)
    return task_of(tmp_path_factory.mktemp(request.param), text, "")


@pytest.fixture(scope="module")
def on_the_host(task: Task, processes: Processes) -> Iterator[Judge]:
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        yield judge


def require_only_in_its_class(result: Verified | Fault, precision: Precision) -> None:
    if precision is Precision.TF32:
        assert isinstance(result, Verified), message_of(result)
        assert "in class tf32" in describe(result)
    else:
        assert verdict_of(result) is Verdict.INCORRECT
        assert "precision class is fp32" in message_of(result)


def test_operands_rounded_to_tf32_are_right_in_that_class_only(on_the_host: Judge, task: Task) -> None:
    require_only_in_its_class(on_the_host.verify(ROUNDED), task.facts.precision_on(Target.CPU))


def test_pytorch_may_use_tf32_in_that_class_only(on_the_host: Judge, task: Task) -> None:
    """Candidates and baselines are loaded alike: a baseline that may not would be twice as slow as it need be."""
    allowed = task.facts.precision_on(Target.CPU) is Precision.TF32
    assert f"TF32 {allowed}" in message_of(on_the_host.verify(TELLS))


@pytest.mark.nvcc
def test_the_kernel_for_tensor_cores_compiles(task: Task, processes_for_cuda: Processes) -> None:
    with Judge(task, Target.CUDA, processes=processes_for_cuda) as judge:
        assert judge.compile(TENSOR_CORES).status == "built"


@pytest.mark.gpu
def test_tensor_cores_are_right_in_that_class_only(task: Task) -> None:
    """A naive kernel: against a baseline in fp32 it might look fast, against one in TF32 it must not."""
    with Judge(task, Target.CUDA) as judge:
        require_only_in_its_class(judge.verify(TENSOR_CORES), task.facts.precision_on(Target.CUDA))
        if task.facts.precision_on(Target.CUDA) is Precision.TF32:
            timed = judge.benchmark(TENSOR_CORES)
            assert isinstance(timed, Timed), message_of(timed)
            assert timed.speedup_interval.low < 1.0
