"""Depthwise Conv1d, SiLU, pointwise Conv1d on the GPU: one thread an output; weights drawn its own way. Correct."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <cuda_runtime.h>

__global__ void depthwise_separable_kernel(const float* __restrict__ x, const float* __restrict__ depthwise,
                                           const float* __restrict__ pointwise, float* __restrict__ out,
                                           long long total, int channels, int outputs, int length, int width,
                                           int dilation) {
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const int t = index % length;
    const int o = index / length % outputs;
    const float* samples = x + index / length / outputs * channels * length;
    const int padding = (width - 1) * dilation / 2;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
        float filtered = 0.0f;
        for (int k = 0; k < width; ++k) {
            const int source = t + k * dilation - padding;
            if (source >= 0 && source < length) {
                filtered += samples[static_cast<long long>(c) * length + source] * depthwise[c * width + k];
            }
        }
        sum += filtered / (1.0f + expf(-filtered)) * pointwise[o * channels + c];
    }
    out[index] = sum;
}

void launch_depthwise_separable(const float* x, const float* depthwise, const float* pointwise, float* out, int batch,
                                int channels, int outputs, int length, int width, int dilation, cudaStream_t stream) {
    const long long total = static_cast<long long>(batch) * outputs * length;
    const unsigned blocks = static_cast<unsigned>((total + 255) / 256);
    depthwise_separable_kernel<<<blocks, 256, 0, stream>>>(x, depthwise, pointwise, out, total, channels, outputs,
                                                           length, width, dilation);
}
"""

CPP_SOURCE = """
#include <c10/cuda/CUDAStream.h>

void launch_depthwise_separable(const float* x, const float* depthwise, const float* pointwise, float* out, int batch,
                                int channels, int outputs, int length, int width, int dilation, cudaStream_t stream);

torch::Tensor depthwise_separable(torch::Tensor x, torch::Tensor depthwise, torch::Tensor pointwise,
                                  int64_t dilation) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "depthwise_separable: x must be float32 on the GPU");
    TORCH_CHECK(x.dim() == 3 && depthwise.dim() == 2 && pointwise.dim() == 2,
                "depthwise_separable: expected x (N, C, L), depthwise (C, K), pointwise (O, C)");
    TORCH_CHECK(depthwise.size(0) == x.size(1) && pointwise.size(1) == x.size(1),
                "depthwise_separable: x has ", x.size(1), " channels, the weights have others");
    const torch::Tensor input = x.contiguous(), taps = depthwise.contiguous(), mix = pointwise.contiguous();
    torch::Tensor out = torch::empty({input.size(0), mix.size(0), input.size(2)}, input.options());
    launch_depthwise_separable(input.data_ptr<float>(), taps.data_ptr<float>(), mix.data_ptr<float>(),
                               out.data_ptr<float>(), input.size(0), input.size(1), mix.size(0), input.size(2),
                               taps.size(1), dilation, c10::cuda::getCurrentCUDAStream());
    const cudaError_t error = cudaGetLastError();
    TORCH_CHECK(error == cudaSuccess, "depthwise_separable: ", cudaGetErrorString(error));
    return out;
}
"""

extension = load_inline(
    name="depthwise_kaiming_a5",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["depthwise_separable"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """Draws its weights unlike the reference, which must not matter: the harness fills them."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1) -> None:
        super().__init__()
        self.dilation = dilation
        self.dw = nn.Module()
        self.dw.weight = nn.Parameter(torch.empty(in_channels, kernel_size))
        self.pw = nn.Module()
        self.pw.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        nn.init.kaiming_uniform_(self.dw.weight, a=5)
        nn.init.kaiming_uniform_(self.pw.weight, a=5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in_channels, L) to (N, out_channels, L)."""
        return extension.depthwise_separable(x, self.dw.weight, self.pw.weight, self.dilation)
