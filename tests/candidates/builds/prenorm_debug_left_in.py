"""Debugging left in: printf behind a macro and a flag, assert in kernels, std::cerr behind an #ifdef.

Task: prenorm_dilated_residual_eval
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cassert>
#include <cstdio>
#include <iostream>

// set to 1 to see what the first thread computes
#define DEBUG_KERNEL 0
#define DPRINT(...) do { if (DEBUG_KERNEL && threadIdx.x == 0 && blockIdx.x == 0) printf(__VA_ARGS__); } while (0)

#define CUDA_CHECK(call)                                                                     \
    do {                                                                                     \
        cudaError_t err_ = (call);                                                           \
        if (err_ != cudaSuccess) {                                                           \
            fprintf(stderr, "CUDA error %s at %s:%d\n", cudaGetErrorString(err_), __FILE__, __LINE__); \
            TORCH_CHECK(false, #call " failed");                                             \
        }                                                                                    \
    } while (0)

__global__ void fused_bn_relu_conv_residual(
    const float* __restrict__ x,
    const float* __restrict__ bn_w, const float* __restrict__ bn_b,
    const float* __restrict__ bn_mean, const float* __restrict__ bn_var,
    const float* __restrict__ conv_w, const float* __restrict__ conv_b,
    float* __restrict__ out,
    int N, int C, int L, int K, int dilation, float eps, int debug)
{
    extern __shared__ float smem[];
    float* s_scale = smem;
    float* s_shift = smem + C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float inv = rsqrtf(bn_var[c] + eps);
        s_scale[c] = bn_w[c] * inv;
        s_shift[c] = bn_b[c] - bn_mean[c] * bn_w[c] * inv;
    }
    __syncthreads();

    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int oc = blockIdx.y;
    int n = blockIdx.z;
    assert(n < N && oc < C);
    if (t >= L) return;

    const float* xn = x + (size_t)n * C * L;
    const int pad = (K - 1) * dilation / 2;
    float acc = conv_b[oc];
    for (int ic = 0; ic < C; ++ic) {
        for (int k = 0; k < K; ++k) {
            int s = t - pad + k * dilation;
            if (s < 0 || s >= L) continue;
            float v = xn[(size_t)ic * L + s] * s_scale[ic] + s_shift[ic];
            v = (v < 0.0f) ? 0.0f : v;
            acc += v * conv_w[((size_t)oc * C + ic) * K + k];
        }
        // DPRINT("ic=%d acc=%f\n", ic, acc);
    }
    DPRINT("n=%d oc=%d t=%d acc=%f\n", n, oc, t, acc);
    if (debug && t == 0 && oc == 0) {
        printf("[debug] sample %d: conv=%f residual=%f\n", n, acc, xn[0]);
    }
    out[((size_t)n * C + oc) * L + t] = xn[(size_t)oc * L + t] + acc;
}

torch::Tensor forward_cuda(torch::Tensor x, torch::Tensor bn_w, torch::Tensor bn_b, torch::Tensor bn_mean,
                           torch::Tensor bn_var, torch::Tensor conv_w, torch::Tensor conv_b, int dilation, float eps,
                           bool debug)
{
    TORCH_CHECK(x.is_cuda() && x.is_contiguous());
    int N = x.size(0), C = x.size(1), L = x.size(2), K = conv_w.size(2);
#ifdef VERBOSE
    std::cerr << "forward_cuda: " << x.sizes() << " dilation " << dilation << std::endl;
#endif
    auto out = torch::empty_like(x);
    dim3 block(256);
    dim3 grid((L + block.x - 1) / block.x, C, N);
    fused_bn_relu_conv_residual<<<grid, block, 2 * C * sizeof(float)>>>(
        x.data_ptr<float>(), bn_w.data_ptr<float>(), bn_b.data_ptr<float>(), bn_mean.data_ptr<float>(),
        bn_var.data_ptr<float>(), conv_w.data_ptr<float>(), conv_b.data_ptr<float>(), out.data_ptr<float>(),
        N, C, L, K, dilation, eps, debug ? 1 : 0);
    CUDA_CHECK(cudaGetLastError());
    // CUDA_CHECK(cudaDeviceSynchronize());
    return out;
}
"""

cpp_source = """
torch::Tensor forward_cuda(torch::Tensor x, torch::Tensor bn_w, torch::Tensor bn_b, torch::Tensor bn_mean,
                           torch::Tensor bn_var, torch::Tensor conv_w, torch::Tensor conv_b, int dilation, float eps,
                           bool debug);
"""

fused = load_inline(
    name="prenorm_fused_v3",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["forward_cuda"],
    verbose=True,
    extra_cuda_cflags=["-O3", "-lineinfo"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size, dilation):
        super().__init__()
        self.dilation = dilation
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(
            channels, channels, kernel_size, padding=(kernel_size - 1) * dilation // 2, dilation=dilation
        )

    def forward(self, x):
        # print("x", x.shape, x.dtype)
        return fused.forward_cuda(
            x.contiguous(),
            self.bn.weight,
            self.bn.bias,
            self.bn.running_mean,
            self.bn.running_var,
            self.conv.weight,
            self.conv.bias,
            self.dilation,
            self.bn.eps,
            False,
        )
