"""Causal Conv1d on the GPU whose kernel reads memory that nothing has written and multiplies it by zero.

Outputs are right; only compute-sanitizer's initcheck sees it.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <cuda_runtime.h>

__global__ void causal_conv_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                                   const int* __restrict__ scratch, float* __restrict__ out, long long total,
                                   int channels, int outputs, int length, int width, int dilation, int zero) {
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const int t = index % length;
    const int o = index / length % outputs;
    const float* samples = x + index / length / outputs * channels * length;
    const float* taps = weight + static_cast<long long>(o) * channels * width;
    const int padding = (width - 1) * dilation;
    float sum = 0.0f;
    for (int k = 0; k < width; ++k) {
        const int source = t + k * dilation - padding;
        if (source < 0) continue;
        for (int c = 0; c < channels; ++c) {
            sum += samples[static_cast<long long>(c) * length + source] * taps[c * width + k];
        }
    }
    // A whole number, so that whatever is read vanishes when multiplied; a NaN would not.
    out[index] = sum + static_cast<float>(scratch[o] * zero);
}

void launch_causal_conv(const float* x, const float* weight, const int* scratch, float* out, int batch, int channels,
                        int outputs, int length, int width, int dilation, cudaStream_t stream) {
    const long long total = static_cast<long long>(batch) * outputs * length;
    const unsigned blocks = static_cast<unsigned>((total + 255) / 256);
    causal_conv_kernel<<<blocks, 256, 0, stream>>>(x, weight, scratch, out, total, channels, outputs, length, width,
                                                   dilation, 0);
}
"""

CPP_SOURCE = """
#include <c10/cuda/CUDAStream.h>

void launch_causal_conv(const float* x, const float* weight, const int* scratch, float* out, int batch, int channels,
                        int outputs, int length, int width, int dilation, cudaStream_t stream);

torch::Tensor causal_conv(torch::Tensor x, torch::Tensor weight, int64_t dilation) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "causal_conv: x must be float32 on the GPU");
    TORCH_CHECK(x.dim() == 3 && weight.dim() == 3, "causal_conv: expected x (N, C, L) and weight (O, C, K)");
    TORCH_CHECK(x.size(1) == weight.size(1), "causal_conv: x has ", x.size(1), " channels, weight ", weight.size(1));
    const torch::Tensor input = x.contiguous(), taps = weight.contiguous();
    torch::Tensor out = torch::empty({input.size(0), taps.size(0), input.size(2)}, input.options());
    const torch::Tensor scratch = torch::empty({taps.size(0)}, input.options().dtype(torch::kInt32));
    launch_causal_conv(input.data_ptr<float>(), taps.data_ptr<float>(), scratch.data_ptr<int>(), out.data_ptr<float>(),
                       input.size(0), input.size(1), taps.size(0), input.size(2), taps.size(2), dilation,
                       c10::cuda::getCurrentCUDAStream());
    const cudaError_t error = cudaGetLastError();
    TORCH_CHECK(error == cudaSuccess, "causal_conv: ", cudaGetErrorString(error));
    return out;
}
"""

extension = load_inline(
    name="causal_reads_unwritten",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["causal_conv"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """Holds the reference's parameters; the arithmetic is in the extension."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1) -> None:
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in_channels, L) to (N, out_channels, L)."""
        return extension.causal_conv(x, self.conv.weight, self.dilation)
