"""Conv1d and GroupNorm on the GPU without the norm's weight and bias. Incorrect."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <cuda_runtime.h>

// sums is (N, groups, 2): the sum of a group's outputs and the sum of their squares.
__global__ void convolve_kernel(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out,
                                float* __restrict__ sums, long long total, int channels, int outputs, int length,
                                int width, int padding, int groups) {
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const int t = index % length;
    const int o = index / length % outputs;
    const long long n = index / length / outputs;
    const float* samples = x + n * channels * length;
    float sum = 0.0f;
    for (int k = 0; k < width; ++k) {
        const int source = t + k - padding;
        if (source < 0 || source >= length) continue;
        for (int c = 0; c < channels; ++c) {
            sum += samples[static_cast<long long>(c) * length + source] * weight[(o * channels + c) * width + k];
        }
    }
    out[index] = sum;
    float* group = sums + (n * groups + o / (outputs / groups)) * 2;
    atomicAdd(group, sum);
    atomicAdd(group + 1, sum * sum);
}

__global__ void normalise_kernel(float* __restrict__ out, const float* __restrict__ sums, long long total,
                                 int outputs, int length, int groups, float eps) {
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const int o = index / length % outputs;
    const int members = outputs / groups;
    const float* group = sums + (index / length / outputs * groups + o / members) * 2;
    const float count = static_cast<float>(members) * length;
    const float mean = group[0] / count;
    const float variance = group[1] / count - mean * mean;
    out[index] = (out[index] - mean) * rsqrtf(variance + eps);
}

void launch_conv_groupnorm(const float* x, const float* weight, float* out, float* sums, int batch, int channels,
                           int outputs, int length, int width, int padding, int groups, float eps,
                           cudaStream_t stream) {
    const long long total = static_cast<long long>(batch) * outputs * length;
    const unsigned blocks = static_cast<unsigned>((total + 255) / 256);
    cudaMemsetAsync(sums, 0, sizeof(float) * 2 * batch * groups, stream);
    convolve_kernel<<<blocks, 256, 0, stream>>>(x, weight, out, sums, total, channels, outputs, length, width, padding,
                                                groups);
    normalise_kernel<<<blocks, 256, 0, stream>>>(out, sums, total, outputs, length, groups, eps);
}
"""

CPP_SOURCE = """
#include <c10/cuda/CUDAStream.h>

void launch_conv_groupnorm(const float* x, const float* weight, float* out, float* sums, int batch, int channels,
                           int outputs, int length, int width, int padding, int groups, float eps,
                           cudaStream_t stream);

torch::Tensor conv_groupnorm(torch::Tensor x, torch::Tensor weight, int64_t groups, int64_t padding,
                             double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "conv_groupnorm: x must be float32 on the GPU");
    TORCH_CHECK(x.dim() == 3 && weight.dim() == 3, "conv_groupnorm: expected x (N, C, L) and weight (O, C, K)");
    TORCH_CHECK(weight.size(2) == 2 * padding + 1, "conv_groupnorm: the padding must keep the length");
    const torch::Tensor input = x.contiguous(), taps = weight.contiguous();
    torch::Tensor out = torch::empty({input.size(0), taps.size(0), input.size(2)}, input.options());
    torch::Tensor sums = torch::empty({input.size(0), groups, 2}, input.options());
    launch_conv_groupnorm(input.data_ptr<float>(), taps.data_ptr<float>(), out.data_ptr<float>(),
                          sums.data_ptr<float>(), input.size(0), input.size(1), taps.size(0), input.size(2),
                          taps.size(2), padding, groups, eps, c10::cuda::getCurrentCUDAStream());
    const cudaError_t error = cudaGetLastError();
    TORCH_CHECK(error == cudaSuccess, "conv_groupnorm: ", cudaGetErrorString(error));
    return out;
}
"""

extension = load_inline(
    name="groupnorm_no_affine",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["conv_groupnorm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """Holds the reference's parameters; the arithmetic is in the extension."""

    def __init__(self, in_channels: int, out_channels: int, num_groups: int, kernel_size: int, padding: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in_channels, L) to (N, out_channels, L)."""
        norm = self.norm
        return extension.conv_groupnorm(x, self.conv.weight, norm.num_groups, self.conv.padding[0], norm.eps)
