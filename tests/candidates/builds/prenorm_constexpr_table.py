"""A constexpr table and constexpr functions in device code, a host accessor<> over a CPU tensor of settings.

Task: prenorm_dilated_residual
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cmath>

// Block sizes that were tried, by the logarithm of the length: short rows want small blocks
__device__ constexpr int kUnroll[4] = {1, 2, 4, 8};
static constexpr int kBlock[] = {32, 32, 32, 32, 32, 64, 64, 128, 128, 256, 256, 256};
static constexpr int kBlocks = sizeof(kBlock) / sizeof(kBlock[0]);

constexpr int log2_floor(long long v) { return v <= 1 ? 0 : 1 + log2_floor(v / 2); }
static_assert(log2_floor(1024) == 10, "log2_floor");

static int block_for(int64_t length) { return kBlock[std::min<int64_t>(log2_floor(length), kBlocks - 1)]; }

__global__ void channel_statistics(const float* __restrict__ x, const float* __restrict__ gamma,
                                   const float* __restrict__ beta, float* running_mean, float* running_var,
                                   long long* tracked, float2* __restrict__ affine, int N, int C, int L,
                                   float momentum, float eps) {
    __shared__ double parts[2][32];
    const int c = blockIdx.x;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    const double count = (double)N * L;
    double mean = 0.0, m2 = 0.0;
    for (int pass = 0; pass < 2; ++pass) {
        double v = 0.0;
        for (long long i = threadIdx.x; i < (long long)N * L; i += blockDim.x) {
            const double d = x[((i / L) * C + c) * L + i % L] - mean;
            v += pass ? d * d : d;
        }
#pragma unroll
        for (int offset = 16; offset; offset >>= 1) v += __shfl_xor_sync(~0u, v, offset);
        if (lane == 0) parts[pass][warp] = v;
        __syncthreads();
        v = 0.0;
        for (int w = 0; w < warps; ++w) v += parts[pass][w];
        if (pass) m2 = v;
        else mean = v / count;
    }
    if (threadIdx.x) return;
    const float scale = (float)(gamma[c] / sqrt(m2 / count + eps));
    affine[c] = make_float2(scale, (float)(beta[c] - mean * scale));
    running_mean[c] = running_mean[c] * (1.f - momentum) + momentum * (float)mean;
    running_var[c] = running_var[c] * (1.f - momentum) + momentum * (float)(m2 / (count - 1));
    if (c == 0) atomicAdd(reinterpret_cast<unsigned long long*>(tracked), 1ULL);
}

template <int LEVEL>
__global__ void residual_convolution(const float* __restrict__ x, const float2* __restrict__ affine,
                                     const float* __restrict__ w, const float* __restrict__ bias,
                                     float* __restrict__ out, int C, int L, int K, int dilation) {
    constexpr int kRows = kUnroll[LEVEL];
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int o = blockIdx.y * kRows;
    if (t >= L) return;
    const float* xn = x + (size_t)blockIdx.z * C * L;
    float acc[kRows];
    for (int r = 0; r < kRows; ++r) acc[r] = o + r < C ? bias[o + r] : 0.f;
    for (int c = 0; c < C; ++c) {
        const float2 a = affine[c];
        for (int k = 0; k < K; ++k) {
            const int s = t + (k - K / 2) * dilation;
            if (s < 0 || s >= L) continue;
            float v = xn[(size_t)c * L + s] * a.x + a.y;
            if (v < 0.f) v = 0.f;
#pragma unroll
            for (int r = 0; r < kRows; ++r)
                if (o + r < C) acc[r] += v * w[((size_t)(o + r) * C + c) * K + k];
        }
    }
    for (int r = 0; r < kRows && o + r < C; ++r)
        out[((size_t)blockIdx.z * C + o + r) * L + t] = xn[(size_t)(o + r) * L + t] + acc[r];
}

// settings: (dilation, momentum, eps) as float64 on the CPU
torch::Tensor forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor running_mean,
                      torch::Tensor running_var, torch::Tensor tracked, torch::Tensor weight, torch::Tensor bias,
                      torch::Tensor settings) {
    TORCH_CHECK(settings.device().is_cpu() && settings.dtype() == torch::kFloat64, "settings: float64 on the CPU");
    auto s = settings.accessor<double, 1>();
    const int dilation = static_cast<int>(s[0]);
    const float momentum = s[1], eps = s[2];
    TORCH_CHECK(weight.size(2) % 2 == 1, "odd kernels only");

    x = x.contiguous();
    const int N = x.size(0), C = x.size(1), L = x.size(2), K = weight.size(2);
    auto affine = torch::empty({C, 2}, x.options());
    auto out = at::empty_like(x);
    float2* pa = reinterpret_cast<float2*>(affine.data_ptr<float>());
    auto stream = at::cuda::getCurrentCUDAStream();
    channel_statistics<<<C, 512, 0, stream>>>(x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(),
                                              running_mean.data_ptr<float>(), running_var.data_ptr<float>(),
                                              reinterpret_cast<long long*>(tracked.data_ptr<int64_t>()), pa, N, C, L,
                                              momentum, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();

    const int block = block_for(L);
    const unsigned across = (L + block - 1) / block;
    if (L >= 512) {
        residual_convolution<3><<<dim3(across, (C + 7) / 8, N), block, 0, stream>>>(
            x.data_ptr<float>(), pa, weight.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), C, L, K,
            dilation);
    } else {
        residual_convolution<1><<<dim3(across, (C + 1) / 2, N), block, 0, stream>>>(
            x.data_ptr<float>(), pa, weight.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), C, L, K,
            dilation);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

cpp_src = """
torch::Tensor forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor running_mean,
                      torch::Tensor running_var, torch::Tensor tracked, torch::Tensor weight, torch::Tensor bias,
                      torch::Tensor settings);
"""

block = load_inline(
    name="prenorm_table",
    cpp_sources=cpp_src,
    cuda_sources=cuda_src,
    functions=["forward"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size, dilation):
        super().__init__()
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(
            channels, channels, kernel_size, padding=dilation * (kernel_size - 1) // 2, dilation=dilation
        )
        self.settings = torch.tensor([dilation, self.bn.momentum, self.bn.eps], dtype=torch.float64)

    def forward(self, x):
        bn = self.bn
        return block.forward(
            x,
            bn.weight,
            bn.bias,
            bn.running_mean,
            bn.running_var,
            bn.num_batches_tracked,
            self.conv.weight,
            self.conv.bias,
            self.settings,
        )
