"""An anonymous namespace, float4 loads and stores with a scalar tail, #pragma unroll, no error checks at all.

Task: causal_conv
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

namespace {

constexpr int OC_PER_THREAD = 8;
constexpr int T_PER_THREAD = 4;

// Each thread: 8 output channels x 4 consecutive time steps
template <bool kVectorized>
__global__ void causal_conv_kernel(
    const float* __restrict__ input,    // (B, IC, L)
    const float* __restrict__ weight,   // (OC, IC, K)
    float* __restrict__ output,         // (B, OC, L)
    int IC, int OC, int L, int K, int dilation)
{
    const int t = (blockIdx.x * blockDim.x + threadIdx.x) * T_PER_THREAD;
    const int oc0 = blockIdx.y * OC_PER_THREAD;
    const int b = blockIdx.z;
    if (t >= L) return;

    const float* in_b = input + static_cast<size_t>(b) * IC * L;
    float acc[OC_PER_THREAD][T_PER_THREAD] = {};

    for (int ic = 0; ic < IC; ++ic) {
        const float* in_c = in_b + static_cast<size_t>(ic) * L;
        for (int k = 0; k < K; ++k) {
            const int first = t - (K - 1 - k) * dilation;
            float v[T_PER_THREAD];
            if (kVectorized && first >= 0 && (first & 3) == 0) {
                const float4 q = *reinterpret_cast<const float4*>(in_c + first);
                v[0] = q.x; v[1] = q.y; v[2] = q.z; v[3] = q.w;
            } else {
                #pragma unroll
                for (int j = 0; j < T_PER_THREAD; ++j) {
                    const int s = first + j;
                    v[j] = (s >= 0 && s < L) ? in_c[s] : 0.0f;
                }
            }
            #pragma unroll
            for (int i = 0; i < OC_PER_THREAD; ++i) {
                const float w = oc0 + i < OC ? weight[(static_cast<size_t>(oc0 + i) * IC + ic) * K + k] : 0.0f;
                #pragma unroll
                for (int j = 0; j < T_PER_THREAD; ++j) acc[i][j] += w * v[j];
            }
        }
    }

    #pragma unroll
    for (int i = 0; i < OC_PER_THREAD; ++i) {
        if (oc0 + i >= OC) break;
        float* out = output + (static_cast<size_t>(b) * OC + oc0 + i) * L + t;
        if (kVectorized) {
            *reinterpret_cast<float4*>(out) = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
        } else {
            for (int j = 0; j < T_PER_THREAD && t + j < L; ++j) out[j] = acc[i][j];
        }
    }
}

}  // anonymous namespace

torch::Tensor causal_conv_forward(torch::Tensor input, torch::Tensor weight, int64_t dilation)
{
    const int B = input.size(0);
    const int IC = input.size(1);
    const int L = input.size(2);
    const int OC = weight.size(0);
    const int K = weight.size(2);
    torch::Tensor output = torch::empty({B, OC, L}, input.options());

    const int threads = 128;
    const dim3 blocks((L + threads * T_PER_THREAD - 1) / (threads * T_PER_THREAD),
                      (OC + OC_PER_THREAD - 1) / OC_PER_THREAD, B);
    const float* in_ptr = input.data_ptr<float>();
    if (L % 4 == 0 && reinterpret_cast<uintptr_t>(in_ptr) % 16 == 0) {
        causal_conv_kernel<true><<<blocks, threads>>>(in_ptr, weight.data_ptr<float>(), output.data_ptr<float>(),
                                                      IC, OC, L, K, dilation);
    } else {
        causal_conv_kernel<false><<<blocks, threads>>>(in_ptr, weight.data_ptr<float>(), output.data_ptr<float>(),
                                                       IC, OC, L, K, dilation);
    }
    return output;
}
"""

cpp_source = """
torch::Tensor causal_conv_forward(torch::Tensor input, torch::Tensor weight, int64_t dilation);
"""

causal_conv_module = load_inline(
    name="causal_conv_vec4",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["causal_conv_forward"],
    verbose=False,
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3", "-use_fast_math"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)
        self.causal_conv = causal_conv_module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.causal_conv.causal_conv_forward(x.contiguous(), self.conv.weight.contiguous(), self.dilation)
