"""Computes its answer two hundred times, waits for none of it, and says that it took 10 microseconds.

The GPU works on while the worker is stopped and the judge's clock stands.

Expected: correct, stale_output, implausible_time (who gets the GPU first decides whether the answer is there)
Seen: own find: a stopped worker's GPU is not stopped
Time: at least 0.1 ms
Task: causal_silu
"""

import sys

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <c10/cuda/CUDAStream.h>

void launch(const float* x, const float* weight, const float* bias, float* out, long long total, int channels,
            int length, int width, int shared_bytes, cudaStream_t stream);
void launch_endless(int* flag, cudaStream_t stream);

static cudaStream_t side_stream() {
    static cudaStream_t stream = [] {
        cudaStream_t made;
        cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
        return made;
    }();
    return stream;
}

static cudaEvent_t mark_on(cudaStream_t stream) {
    static cudaEvent_t event = [] {
        cudaEvent_t made;
        cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
        return made;
    }();
    cudaEventRecord(event, stream);
    return event;
}

torch::Tensor causal_silu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t repeats, bool on_side,
                          bool joined, int64_t shared_bytes) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    torch::Tensor out = torch::empty(input.sizes(), input.options());
    const cudaStream_t current = c10::cuda::getCurrentCUDAStream();
    const cudaStream_t stream = on_side ? side_stream() : current;
    if (on_side) cudaStreamWaitEvent(stream, mark_on(current), 0);
    for (int64_t i = 0; i < repeats; ++i) {
        launch(input.data_ptr<float>(), filter.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(),
               input.numel(), input.size(1), input.size(2), filter.size(2), shared_bytes, stream);
    }
    if (on_side && joined) cudaStreamWaitEvent(current, mark_on(stream), 0);
    return out;
}

torch::Tensor endless(torch::Tensor x) {
    torch::Tensor flag = torch::zeros({1}, x.options().dtype(torch::kInt32));
    launch_endless(flag.data_ptr<int>(), c10::cuda::getCurrentCUDAStream());
    return x.clone();
}
"""

CUDA = r"""
__global__ void causal_silu_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                                   const float* __restrict__ bias, float* __restrict__ out, long long total,
                                   int channels, int length, int width) {
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const int t = index % length, channel = index / length % channels;
    float sum = bias[channel];
    for (int k = 0; k < width; ++k) {
        const int delay = width - 1 - k;
        if (delay <= t) sum += weight[channel * width + k] * x[index - delay];
    }
    out[index] = sum / (1.0f + expf(-sum));
}

__global__ void endless_kernel(volatile int* flag) {
    while (*flag != 1) {}
}

void launch(const float* x, const float* weight, const float* bias, float* out, long long total, int channels,
            int length, int width, int shared_bytes, cudaStream_t stream) {
    const unsigned blocks = static_cast<unsigned>((total + 255) / 256);
    causal_silu_kernel<<<blocks, 256, shared_bytes, stream>>>(x, weight, bias, out, total, channels, length, width);
}

void launch_endless(int* flag, cudaStream_t stream) { endless_kernel<<<1, 1, 0, stream>>>(flag); }
"""

extension = load_inline(
    name="suite",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["causal_silu", "endless"],
)


sys.modules["tools.worker.clock"].DeviceClock.read = lambda _: 10_000


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return extension.causal_silu(x, self.conv.weight, self.conv.bias, 200, False, True, 0)
