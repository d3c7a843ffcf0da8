"""Leaves a kernel spinning while its worker is stopped, and ends it when its own next call begins.

It waits until the judge has taken the outputs. The GPU then takes turns between the kernel and the baseline's calls.

Expected: implausible_time, correct (a worker that is stopped before it launches leaves the baseline alone)
Seen: own find: a stopped worker's GPU is not stopped
Speedup: below 1
Task: causal_silu
"""

import sys
import time

import torch
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

SPIN = r"""
#include <c10/cuda/CUDAStream.h>

void launch_spin(int* flag, cudaStream_t stream);

void spin(torch::Tensor flag) {
    static cudaStream_t stream = [] {
        cudaStream_t made;
        cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
        return made;
    }();
    launch_spin(flag.data_ptr<int>(), stream);
}
"""

SPIN_CUDA = r"""
// Ends by itself after a quarter of a second or so: nobody else could end it once its process is gone.
__global__ void spin_kernel(volatile int* flag) {
    const long long started = clock64();
    while (*flag == 0 && clock64() - started < 500000000) {}
}

void launch_spin(int* flag, cudaStream_t stream) { spin_kernel<<<1, 1, 0, stream>>>(flag); }
"""

spinning = load_inline(name="spin", cpp_sources=SPIN, cuda_sources=SPIN_CUDA, functions=["spin"])

main = sys.modules["tools.worker.main"]
worker = sys.modules["tools.worker.session"].Session
send, handle = main.Wire.send, worker.handle
clock = time.perf_counter_ns
TAKEN_NS = 60_000
"""After so long the judge has its copy of the outputs; it stops the worker some 100 us after the answer."""
flags = []


def send_and_spin(self, message):
    send(self, message)
    if "ns" in message.get("done", {}):
        answered = clock()
        flags[:] = flags or [torch.zeros(1, dtype=torch.int32).pin_memory()]
        flags[0].zero_()
        while clock() - answered < TAKEN_NS:
            pass
        spinning.spin(flags[0])


def end_and_handle(self, request):
    for flag in flags:
        flag.fill_(1)
    return handle(self, request)


main.Wire.send = send_and_spin
worker.handle = end_and_handle


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return extension.causal_silu(x, self.conv.weight, self.conv.bias, 200, False, True, 0)
