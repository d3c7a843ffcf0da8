"""if constexpr on an enum class, variadic templates with a fold expression, a variable template.

Task: conv_groupnorm
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <type_traits>

enum class Pad { kZero, kInside };

template <typename T>
inline constexpr bool is_wide_v = std::is_same_v<T, double>;

template <typename... Ts>
__host__ __device__ constexpr long long product(Ts... values) {
    return (static_cast<long long>(values) * ... * 1LL);
}

// kInside: the whole window lies in the input, so no bounds are checked
template <Pad P, int WIDTH>
__device__ __forceinline__ float window(const float* __restrict__ row, const float* __restrict__ w, int first,
                                        int length) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        if constexpr (P == Pad::kInside) {
            sum += row[first + k] * w[k];
        } else {
            const int s = first + k;
            sum += (s >= 0 && s < length ? row[s] : 0.0f) * w[k];
        }
    }
    return sum;
}

template <int WIDTH>
__global__ void convolve(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int channels,
                         int outputs, int length, int pad) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y, n = blockIdx.z;
    if (t >= length) return;
    const int first = t - pad;
    const float* row = x + product(n, channels, length);
    const float* taps = w + product(o, channels, WIDTH);
    float sum = 0.0f;
    if (first >= 0 && first + WIDTH <= length) {
        for (int c = 0; c < channels; ++c, row += length, taps += WIDTH)
            sum += window<Pad::kInside, WIDTH>(row, taps, first, length);
    } else {
        for (int c = 0; c < channels; ++c, row += length, taps += WIDTH)
            sum += window<Pad::kZero, WIDTH>(row, taps, first, length);
    }
    y[product(n, outputs, length) + product(o, length) + t] = sum;
}

// Sums in T; the second pass is around the mean, so float would do as well
template <typename T, int THREADS>
__global__ void normalise(float* __restrict__ y, const float* __restrict__ gamma, const float* __restrict__ beta,
                          int members, int length, int groups, float eps) {
    __shared__ T cells[THREADS];
    const long long count = product(members, length);
    float* group = y + blockIdx.x * count;
    auto total = [&](T v) {
        cells[threadIdx.x] = v;
        __syncthreads();
#pragma unroll
        for (int half = THREADS / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) cells[threadIdx.x] += cells[threadIdx.x + half];
            __syncthreads();
        }
        const T result = cells[0];
        __syncthreads();
        return result;
    };
    T sum = 0;
    for (long long i = threadIdx.x; i < count; i += THREADS) sum += group[i];
    const T mean = total(sum) / count;
    sum = 0;
    for (long long i = threadIdx.x; i < count; i += THREADS) sum += (group[i] - mean) * (group[i] - mean);
    const T variance = total(sum) / count;
    float rstd;
    if constexpr (is_wide_v<T>) {
        rstd = static_cast<float>(1.0 / sqrt(variance + eps));
    } else {
        rstd = rsqrtf(variance + eps);
    }
    for (long long i = threadIdx.x; i < count; i += THREADS) {
        const int o = blockIdx.x % groups * members + i / length;
        group[i] = static_cast<float>(group[i] - mean) * rstd * gamma[o] + beta[o];
    }
}

torch::Tensor conv_norm(torch::Tensor x, torch::Tensor w, torch::Tensor gamma, torch::Tensor beta, int64_t groups,
                        int64_t pad, double eps) {
    x = x.contiguous();
    const int n = x.size(0), channels = x.size(1), length = x.size(2), outputs = w.size(0);
    auto y = torch::empty({n, outputs, length}, x.options());
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const dim3 grid((length + 127) / 128, outputs, n);
    const float *px = x.data_ptr<float>(), *pw = w.data_ptr<float>();
    switch (w.size(2)) {
        case 1: convolve<1><<<grid, 128, 0, stream>>>(px, pw, y.data_ptr<float>(), channels, outputs, length, pad); break;
        case 3: convolve<3><<<grid, 128, 0, stream>>>(px, pw, y.data_ptr<float>(), channels, outputs, length, pad); break;
        case 5: convolve<5><<<grid, 128, 0, stream>>>(px, pw, y.data_ptr<float>(), channels, outputs, length, pad); break;
        default: TORCH_CHECK(false, "kernel width ", w.size(2), " has no instantiation");
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (length >= 64)
        normalise<double, 512><<<n * groups, 512, 0, stream>>>(y.data_ptr<float>(), gamma.data_ptr<float>(),
                                                               beta.data_ptr<float>(), outputs / groups, length,
                                                               groups, eps);
    else
        normalise<float, 64><<<n * groups, 64, 0, stream>>>(y.data_ptr<float>(), gamma.data_ptr<float>(),
                                                            beta.data_ptr<float>(), outputs / groups, length, groups,
                                                            eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

header = """
torch::Tensor conv_norm(torch::Tensor x, torch::Tensor w, torch::Tensor gamma, torch::Tensor beta, int64_t groups,
                        int64_t pad, double eps);
"""

ext = load_inline(
    name="conv_norm_constexpr",
    cpp_sources=header,
    cuda_sources=source,
    functions=["conv_norm"],
    extra_cuda_cflags=["-O3", "--ptxas-options=-v"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, num_groups: int, kernel_size: int, padding: int):
        super().__init__()
        self.padding = padding
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, stride=1, padding=padding, bias=False)
        self.norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gn = self.norm
        return ext.conv_norm(x, self.conv.weight, gn.weight, gn.bias, gn.num_groups, self.padding, gn.eps)
