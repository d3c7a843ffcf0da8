"""A template over the kernel width with five instantiations and a generic one, picked by a switch.

Task: causal_conv
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

// Each thread computes one output element (b, oc, t).
// KW > 0: kernel width known at compile time, KW == 0: runtime width
template <int KW>
__global__ void causal_conv1d_kernel(
    const float* __restrict__ x,
    const float* __restrict__ w,
    float* __restrict__ y,
    const int C_in,
    const int C_out,
    const int L,
    const int runtime_kw,
    const int dilation
) {
    const int kw = KW > 0 ? KW : runtime_kw;
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int oc = blockIdx.y;
    const int b = blockIdx.z;
    if (t >= L) return;

    const float* xb = x + (long)b * C_in * L;
    const float* wo = w + (long)oc * C_in * kw;
    float acc = 0.0f;
    for (int ic = 0; ic < C_in; ic++) {
        #pragma unroll
        for (int k = 0; k < kw; k++) {
            int t_in = t - (kw - 1 - k) * dilation;
            if (t_in >= 0) {
                acc = fmaf(__ldg(&xb[(long)ic * L + t_in]), __ldg(&wo[ic * kw + k]), acc);
            }
        }
    }
    y[((long)b * C_out + oc) * L + t] = acc;
}

torch::Tensor causal_conv1d_cuda(torch::Tensor x, torch::Tensor weight, int dilation) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    TORCH_CHECK(weight.is_cuda(), "weight must be a CUDA tensor");
    x = x.contiguous();
    weight = weight.contiguous();

    const int B = x.size(0);
    const int C_in = x.size(1);
    const int L = x.size(2);
    const int C_out = weight.size(0);
    const int K = weight.size(2);

    auto y = torch::empty({B, C_out, L}, x.options());

    const int threads = 256;
    dim3 grid((L + threads - 1) / threads, C_out, B);

#define LAUNCH(KW)                                                             \
    causal_conv1d_kernel<KW><<<grid, threads>>>(                               \
        x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(),    \
        C_in, C_out, L, K, dilation)

    switch (K) {
        case 1: LAUNCH(1); break;
        case 2: LAUNCH(2); break;
        case 3: LAUNCH(3); break;
        case 4: LAUNCH(4); break;
        case 5: LAUNCH(5); break;
        default: LAUNCH(0); break;
    }
#undef LAUNCH

    return y;
}
"""

cpp_source = "torch::Tensor causal_conv1d_cuda(torch::Tensor x, torch::Tensor weight, int dilation);"

causal_conv1d = load_inline(
    name="causal_conv1d_templates",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["causal_conv1d_cuda"],
    verbose=False,
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)

    def forward(self, x):
        return causal_conv1d.causal_conv1d_cuda(x, self.conv.weight, self.dilation)
