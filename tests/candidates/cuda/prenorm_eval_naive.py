"""x + Conv1d(ReLU(BatchNorm1d(x))) on the GPU with the running statistics: one thread an output. Right in eval mode."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <cuda_runtime.h>

__global__ void prenorm_eval_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                                    const float* __restrict__ beta, const float* __restrict__ mean,
                                    const float* __restrict__ var, const float* __restrict__ weight,
                                    const float* __restrict__ bias, float* __restrict__ out, long long total,
                                    int channels, int length, int width, int dilation, float eps) {
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const int t = index % length;
    const int o = index / length % channels;
    const float* samples = x + index / length / channels * channels * length;
    const int padding = (width - 1) * dilation / 2;
    float sum = bias[o];
    for (int c = 0; c < channels; ++c) {
        const float scale = gamma[c] / sqrtf(var[c] + eps);
        for (int k = 0; k < width; ++k) {
            const int source = t + k * dilation - padding;
            if (source < 0 || source >= length) continue;
            const float y = (samples[static_cast<long long>(c) * length + source] - mean[c]) * scale + beta[c];
            sum += (y < 0.0f ? 0.0f : y) * weight[(o * channels + c) * width + k];
        }
    }
    out[index] = x[index] + sum;
}

void launch_prenorm_eval(const float* x, const float* gamma, const float* beta, const float* mean, const float* var,
                         const float* weight, const float* bias, float* out, int batch, int channels, int length,
                         int width, int dilation, float eps, cudaStream_t stream) {
    const long long total = static_cast<long long>(batch) * channels * length;
    const unsigned blocks = static_cast<unsigned>((total + 255) / 256);
    prenorm_eval_kernel<<<blocks, 256, 0, stream>>>(x, gamma, beta, mean, var, weight, bias, out, total, channels,
                                                    length, width, dilation, eps);
}
"""

CPP_SOURCE = """
#include <c10/cuda/CUDAStream.h>

void launch_prenorm_eval(const float* x, const float* gamma, const float* beta, const float* mean, const float* var,
                         const float* weight, const float* bias, float* out, int batch, int channels, int length,
                         int width, int dilation, float eps, cudaStream_t stream);

torch::Tensor prenorm_eval(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor mean,
                           torch::Tensor var, torch::Tensor weight, torch::Tensor bias, int64_t dilation, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "prenorm_eval: x must be float32 on the GPU");
    TORCH_CHECK(x.dim() == 3 && weight.dim() == 3, "prenorm_eval: expected x (N, C, L) and weight (C, C, K)");
    TORCH_CHECK(x.size(1) == weight.size(1), "prenorm_eval: x has ", x.size(1), " channels, weight ", weight.size(1));
    const torch::Tensor input = x.contiguous(), taps = weight.contiguous();
    torch::Tensor out = torch::empty_like(input);
    launch_prenorm_eval(input.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(),
                        mean.data_ptr<float>(), var.data_ptr<float>(), taps.data_ptr<float>(), bias.data_ptr<float>(),
                        out.data_ptr<float>(), input.size(0), input.size(1), input.size(2), taps.size(2), dilation,
                        eps, c10::cuda::getCurrentCUDAStream());
    const cudaError_t error = cudaGetLastError();
    TORCH_CHECK(error == cudaSuccess, "prenorm_eval: ", cudaGetErrorString(error));
    return out;
}
"""

extension = load_inline(
    name="prenorm_eval_naive",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["prenorm_eval"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """Holds the reference's parameters; the arithmetic is in the extension."""

    def __init__(self, channels: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(channels, channels, kernel_size, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, L) to (N, channels, L)."""
        bn, conv = self.bn, self.conv
        return extension.prenorm_eval(
            x, bn.weight, bn.bias, bn.running_mean, bn.running_var, conv.weight, conv.bias, self.dilation, bn.eps
        )
