"""Three bound functions, each called from Python on its own: depthwise, SiLU in place, pointwise as a tiled matmul.

Task: depthwise_separable
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <math.h>

#define BLOCK_SIZE 256
#define TILE 32

__global__ void depthwise_conv1d_kernel(const float* input, const float* weight, float* output,
                                        int batch, int channels, int length, int out_length,
                                        int kernel_size, int dilation) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    int total = batch * channels * out_length;
    if (idx < total) {
        int t = idx % out_length;
        int c = (idx / out_length) % channels;
        int b = idx / (out_length * channels);
        float sum = 0.0f;
        for (int k = 0; k < kernel_size; k++) {
            sum += input[(b * channels + c) * length + t + k * dilation] * weight[c * kernel_size + k];
        }
        output[idx] = sum;
    }
}

__global__ void silu_kernel(float* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = blockDim.x * gridDim.x;
    for (; i < n; i += stride) {
        float v = data[i];
        data[i] = v / (1.0f + expf(-v));
    }
}

__global__ void pointwise_conv_kernel(const float* input, const float* weight, float* output,
                                      int in_channels, int out_channels, int length) {
    __shared__ float w_tile[TILE][TILE];
    __shared__ float x_tile[TILE][TILE + 1];
    int t = blockIdx.x * TILE + threadIdx.x;
    int oc = blockIdx.y * TILE + threadIdx.y;
    const float* x = input + (size_t)blockIdx.z * in_channels * length;
    float sum = 0.0f;
    for (int c = 0; c < in_channels; c += TILE) {
        w_tile[threadIdx.y][threadIdx.x] =
            (oc < out_channels && c + threadIdx.x < in_channels) ? weight[oc * in_channels + c + threadIdx.x] : 0.0f;
        x_tile[threadIdx.y][threadIdx.x] =
            (t < length && c + threadIdx.y < in_channels) ? x[(size_t)(c + threadIdx.y) * length + t] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < TILE; i++) {
            sum += w_tile[threadIdx.y][i] * x_tile[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (oc < out_channels && t < length) {
        output[((size_t)blockIdx.z * out_channels + oc) * length + t] = sum;
    }
}

torch::Tensor depthwise_conv1d(torch::Tensor input, torch::Tensor weight, int dilation) {
    int batch = input.size(0);
    int channels = input.size(1);
    int length = input.size(2);
    int kernel_size = weight.size(2);
    int out_length = length - (kernel_size - 1) * dilation;
    auto output = torch::zeros({batch, channels, out_length}, input.options());
    int total = batch * channels * out_length;
    depthwise_conv1d_kernel<<<(total + BLOCK_SIZE - 1) / BLOCK_SIZE, BLOCK_SIZE>>>(
        input.data_ptr<float>(), weight.data_ptr<float>(), output.data_ptr<float>(),
        batch, channels, length, out_length, kernel_size, dilation);
    return output;
}

void silu_(torch::Tensor data) {
    int n = data.numel();
    int blocks = std::min((n + BLOCK_SIZE - 1) / BLOCK_SIZE, 65535);
    silu_kernel<<<blocks, BLOCK_SIZE>>>(data.data_ptr<float>(), n);
}

torch::Tensor pointwise_conv(torch::Tensor input, torch::Tensor weight) {
    int batch = input.size(0);
    int in_channels = input.size(1);
    int length = input.size(2);
    int out_channels = weight.size(0);
    auto output = torch::empty({batch, out_channels, length}, input.options());
    dim3 block(TILE, TILE);
    dim3 grid((length + TILE - 1) / TILE, (out_channels + TILE - 1) / TILE, batch);
    pointwise_conv_kernel<<<grid, block>>>(
        input.data_ptr<float>(), weight.data_ptr<float>(), output.data_ptr<float>(),
        in_channels, out_channels, length);
    return output;
}
"""

cpp_source = """
torch::Tensor depthwise_conv1d(torch::Tensor input, torch::Tensor weight, int dilation);
void silu_(torch::Tensor data);
torch::Tensor pointwise_conv(torch::Tensor input, torch::Tensor weight);
"""

kernels = load_inline(
    name="separable_kernels",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["depthwise_conv1d", "silu_", "pointwise_conv"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1):
        super().__init__()
        self.dilation = dilation
        self.pad = (kernel_size - 1) * dilation // 2
        self.dw = nn.Conv1d(
            in_channels, in_channels, kernel_size, padding="same", dilation=dilation, groups=in_channels, bias=False
        )
        self.pw = nn.Conv1d(in_channels, out_channels, kernel_size=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = kernels.depthwise_conv1d(F.pad(x, (self.pad, self.pad)).contiguous(), self.dw.weight, self.dilation)
        kernels.silu_(h)
        return kernels.pointwise_conv(h, self.pw.weight)
