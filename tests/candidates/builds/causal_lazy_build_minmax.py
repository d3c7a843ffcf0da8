"""Built on first use behind lru_cache; std::min and std::max over int64_t and int, a flattened 1-D grid.

Task: causal_conv
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = R"""
#include <torch/extension.h>
#include <algorithm>
#include <cstdint>
#include <limits>

using index_t = int64_t;

template <typename T>
__device__ __host__ constexpr T cdiv(T a, T b) { return (a + b - 1) / b; }

struct ConvArgs {
    index_t batch, in_channels, out_channels, length;
    int kernel, dilation;
};

__global__ void __launch_bounds__(256, 4) conv_kernel(const float* __restrict__ x, const float* __restrict__ w,
                                                      float* __restrict__ out, ConvArgs a) {
    const index_t n_out = a.batch * a.out_channels * a.length;
    const index_t step = index_t(gridDim.x) * blockDim.x;
    for (index_t i = index_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n_out; i += step) {
        const index_t t = i % a.length;
        const index_t oc = (i / a.length) % a.out_channels;
        const index_t b = i / (a.length * a.out_channels);
        // first tap whose sample exists
        const int history = (int)min((index_t)(a.kernel - 1), t / a.dilation);
        float sum = 0.f;
        for (index_t ic = 0; ic < a.in_channels; ++ic) {
            const float* xr = x + (b * a.in_channels + ic) * a.length + t;
            const float* wr = w + (oc * a.in_channels + ic) * a.kernel + a.kernel - 1;
            for (int h = history; h >= 0; --h) sum += xr[-(index_t)h * a.dilation] * wr[-h];
        }
        out[i] = sum;
    }
}

torch::Tensor conv(torch::Tensor x, torch::Tensor w, int64_t dilation) {
    TORCH_CHECK(x.is_cuda(), "GPU only");
    x = x.contiguous(); w = w.contiguous();
    ConvArgs a{x.size(0), x.size(1), w.size(0), x.size(2), (int)w.size(2), (int)dilation};
    auto out = torch::empty({a.batch, a.out_channels, a.length}, x.options());
    constexpr int threads = 256;
    const int64_t wanted = cdiv<int64_t>(out.numel(), threads);
    const int blocks = static_cast<int>(std::max<int64_t>(1, std::min(wanted, (int64_t)std::numeric_limits<int>::max())));
    conv_kernel<<<blocks, threads>>>(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), a);
    return out;
}
"""


@lru_cache(maxsize=None)
def _extension():
    return load_inline(
        name="lazy_causal",
        cpp_sources="torch::Tensor conv(torch::Tensor x, torch::Tensor w, int64_t dilation);",
        cuda_sources=SOURCE,
        functions={"conv": "causal convolution"},
        extra_cuda_cflags=["-O3", "-std=c++20"],
    )


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1) -> None:
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _extension().conv(x, self.conv.weight, self.dilation)
