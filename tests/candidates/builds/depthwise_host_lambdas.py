"""Generic host lambdas that pick a template instantiation and launch it, std::integral_constant, std::array.

Task: depthwise_separable
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <array>
#include <type_traits>
#include <utility>

template <int TAPS, int OUT_PER_THREAD>
__global__ void fused_kernel(const float* __restrict__ x, const float* __restrict__ dw, const float* __restrict__ pw,
                             float* __restrict__ y, int ci, int co, int len, int taps_rt, int dil) {
    const int taps = TAPS ? TAPS : taps_rt;
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int o0 = blockIdx.y * OUT_PER_THREAD;
    if (t >= len) return;
    const float* xb = x + static_cast<size_t>(blockIdx.z) * ci * len;
    float acc[OUT_PER_THREAD] = {0.f};
    for (int c = 0; c < ci; ++c) {
        float v = 0.f;
#pragma unroll
        for (int k = 0; k < taps; ++k) {
            const int s = t + (2 * k - (taps - 1)) * dil / 2;
            if (s >= 0 && s < len) v = fmaf(xb[static_cast<size_t>(c) * len + s], dw[c * taps + k], v);
        }
        v = v / (1.f + __expf(-v));
#pragma unroll
        for (int i = 0; i < OUT_PER_THREAD; ++i) {
            if (o0 + i < co) acc[i] = fmaf(v, __ldg(pw + (o0 + i) * ci + c), acc[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < OUT_PER_THREAD; ++i) {
        if (o0 + i < co) y[(static_cast<size_t>(blockIdx.z) * co + o0 + i) * len + t] = acc[i];
    }
}

torch::Tensor fused(const torch::Tensor& x, const torch::Tensor& dw, const torch::Tensor& pw, int64_t dil) {
    const std::array<int64_t, 3> dims{x.size(0), x.size(1), x.size(2)};
    const int64_t n = dims[0], ci = dims[1], len = dims[2];
    const int64_t co = pw.size(0), taps = dw.size(2);
    TORCH_CHECK((taps - 1) * dil % 2 == 0, "'same' padding must be symmetric");
    auto y = torch::empty({n, co, len}, x.options());
    const auto stream = at::cuda::getCurrentCUDAStream().stream();
    const float *px = x.data_ptr<float>(), *pdw = dw.data_ptr<float>(), *ppw = pw.data_ptr<float>();
    float* py = y.data_ptr<float>();

    auto blocks_for = [](int64_t amount, int64_t per) { return static_cast<unsigned>((amount + per - 1) / per); };
    auto launch = [&](auto taps_c, auto out_c) {
        constexpr int T = decltype(taps_c)::value;
        constexpr int OUT = decltype(out_c)::value;
        const dim3 grid(blocks_for(len, 128), blocks_for(co, OUT), static_cast<unsigned>(n));
        fused_kernel<T, OUT><<<grid, 128, 0, stream>>>(px, pdw, ppw, py, (int)ci, (int)co, (int)len, (int)taps,
                                                       (int)dil);
    };
    auto with_taps = [&](auto out_c) {
        if (taps == 3) return launch(std::integral_constant<int, 3>{}, out_c);
        if (taps == 5) return launch(std::integral_constant<int, 5>{}, out_c);
        return launch(std::integral_constant<int, 0>{}, out_c);
    };
    if (len * n >= 4096) with_taps(std::integral_constant<int, 32>{});
    else with_taps(std::integral_constant<int, 4>{});

    const cudaError_t status = cudaGetLastError();
    TORCH_CHECK(status == cudaSuccess, "fused: ", cudaGetErrorString(status), " for ", x.sizes());
    return y;
}
"""

ext = load_inline(
    name="separable_lambdas",
    cpp_sources="""torch::Tensor fused(const torch::Tensor& x, const torch::Tensor& dw, const torch::Tensor& pw, int64_t dil);""",
    cuda_sources=cuda_src,
    functions=["fused"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        self.dilation = dilation
        self.dw = nn.Conv1d(in_channels, in_channels, kernel_size, groups=in_channels, bias=False)
        self.pw = nn.Conv1d(in_channels, out_channels, 1, bias=False)

    def forward(self, x):
        return ext.fused(x.contiguous(), self.dw.weight, self.pw.weight, self.dilation)
