"""Inline PTX: cp.async with commit and wait groups, dynamic shared memory raised by cudaFuncSetAttribute.

Task: causal_conv
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cstdint>

namespace {

constexpr int kTileT = 128;   // time steps per block
constexpr int kTileO = 64;    // output channels per block
constexpr int kSlice = 16;    // input channels per stage
constexpr int kStages = 3;
constexpr int kThreads = 256; // 16 x 16, each 4 outputs x 8 steps

__device__ __forceinline__ void cp_async4(float* dst, const float* src, bool ok) {
    uint32_t addr = static_cast<uint32_t>(__cvta_generic_to_shared(dst));
    int bytes = ok ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" :: "r"(addr), "l"(src), "r"(bytes));
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::); }
template <int N>
__device__ __forceinline__ void cp_async_wait() { asm volatile("cp.async.wait_group %0;\n" :: "n"(N)); }

struct Params {
    const float* x;
    const float* w;
    float* y;
    int C, O, L, K, dil;
    int span;        // kTileT + (K - 1) * dil
    int stage_floats;
};

__device__ __forceinline__ void load_stage(const Params& p, const float* xb, float* stage, int c0, int t0, int o0) {
    float* xs = stage;                      // [kSlice][span]
    float* ws = stage + kSlice * p.span;    // [kSlice * K][kTileO]
    const int left = t0 - (p.K - 1) * p.dil;
    for (int i = threadIdx.x; i < kSlice * p.span; i += kThreads) {
        const int c = c0 + i / p.span, t = left + i % p.span;
        const bool ok = c < p.C && t >= 0 && t < p.L;
        cp_async4(xs + i, ok ? xb + (size_t)c * p.L + t : p.x, ok);
    }
    for (int i = threadIdx.x; i < kSlice * p.K * kTileO; i += kThreads) {
        const int o = o0 + i % kTileO, j = c0 * p.K + i / kTileO;
        const bool ok = o < p.O && j < p.C * p.K;
        cp_async4(ws + i, ok ? p.w + (size_t)o * p.C * p.K + j : p.w, ok);
    }
}

__global__ void __launch_bounds__(kThreads) causal_kernel(const Params p) {
    extern __shared__ float smem[];
    const int t0 = blockIdx.x * kTileT, o0 = blockIdx.y * kTileO;
    const float* xb = p.x + (size_t)blockIdx.z * p.C * p.L;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int slices = (p.C + kSlice - 1) / kSlice;

    for (int s = 0; s < kStages - 1; ++s) {
        if (s < slices) load_stage(p, xb, smem + s * p.stage_floats, s * kSlice, t0, o0);
        cp_async_commit();
    }
    float acc[4][8] = {};
    for (int s = 0; s < slices; ++s) {
        cp_async_wait<kStages - 2>();
        __syncthreads();
        const int next = s + kStages - 1;
        if (next < slices) load_stage(p, xb, smem + (next % kStages) * p.stage_floats, next * kSlice, t0, o0);
        cp_async_commit();

        const float* xs = smem + (s % kStages) * p.stage_floats;
        const float* ws = xs + kSlice * p.span;
        for (int c = 0; c < kSlice; ++c) {
            for (int k = 0; k < p.K; ++k) {
                float a[4], b[8];
                #pragma unroll
                for (int i = 0; i < 4; ++i) a[i] = ws[(c * p.K + k) * kTileO + ty * 4 + i];
                #pragma unroll
                for (int j = 0; j < 8; ++j) b[j] = xs[c * p.span + tx + j * 16 + k * p.dil];
                #pragma unroll
                for (int i = 0; i < 4; ++i)
                    #pragma unroll
                    for (int j = 0; j < 8; ++j) acc[i][j] += a[i] * b[j];
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int o = o0 + ty * 4 + i;
        if (o >= p.O) continue;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int t = t0 + tx + j * 16;
            if (t < p.L) p.y[((size_t)blockIdx.z * p.O + o) * p.L + t] = acc[i][j];
        }
    }
}

}  // namespace

torch::Tensor causal_conv_async(torch::Tensor x, torch::Tensor w, int64_t dilation) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be a contiguous CUDA tensor");
    auto y = torch::empty({x.size(0), w.size(0), x.size(2)}, x.options());
    Params p;
    p.x = x.data_ptr<float>();
    p.w = w.data_ptr<float>();
    p.y = y.data_ptr<float>();
    p.C = x.size(1); p.O = w.size(0); p.L = x.size(2); p.K = w.size(2); p.dil = dilation;
    p.span = kTileT + (p.K - 1) * p.dil;
    p.stage_floats = kSlice * p.span + kSlice * p.K * kTileO;

    const size_t bytes = sizeof(float) * kStages * p.stage_floats;
    TORCH_CHECK(bytes <= 227 * 1024, "kernel or dilation too large: ", bytes, " bytes of shared memory");
    AT_CUDA_CHECK(cudaFuncSetAttribute(causal_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    dim3 grid((p.L + kTileT - 1) / kTileT, (p.O + kTileO - 1) / kTileO, x.size(0));
    causal_kernel<<<grid, kThreads, bytes, at::cuda::getCurrentCUDAStream()>>>(p);
    AT_CUDA_CHECK(cudaGetLastError());
    return y;
}
"""

cpp_source = "torch::Tensor causal_conv_async(torch::Tensor x, torch::Tensor w, int64_t dilation);"

causal = load_inline(
    name="causal_cp_async",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["causal_conv_async"],
    extra_cuda_cflags=["-O3", "-lineinfo", "-Xptxas=-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)

    def forward(self, x):
        return causal.causal_conv_async(x.contiguous(), self.conv.weight.contiguous(), self.dilation)
