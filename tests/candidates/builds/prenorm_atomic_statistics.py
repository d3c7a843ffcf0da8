"""Statistics by atomicAdd on doubles in two launches, a workspace split by pointer arithmetic, cudaMemsetAsync.

Task: prenorm_dilated_residual
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_CODE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

struct BnState {
    float* running_mean;
    float* running_var;
    int64_t* batches;
    float momentum;
    float eps;
};

// SECOND: around the mean that the first launch's sums give
template <bool SECOND>
__global__ void accumulate(const float* __restrict__ x, double* __restrict__ sums, double* __restrict__ squares,
                           int C, int L, double count) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int c = blockIdx.x, n = blockIdx.y;
    const float* row = x + ((long long)n * C + c) * L;
    const double mean = SECOND ? sums[c] / count : 0.0;
    double v = 0.0;
    for (int t = blockIdx.z * blockDim.x + threadIdx.x; t < L; t += gridDim.z * blockDim.x) {
        const double d = row[t] - mean;
        v += SECOND ? d * d : d;
    }
    for (int i = warp.size() / 2; i > 0; i /= 2) v += warp.shfl_down(v, i);
    if (warp.thread_rank() == 0) atomicAdd((SECOND ? squares : sums) + c, v);
}

__global__ void finish(const double* sums, const double* squares, const float* gamma, const float* beta, float* scale,
                       float* shift, BnState state, int C, double count) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    const double mean = sums[c] / count, var = squares[c] / count;
    const double s = gamma[c] / sqrt(var + (double)state.eps);
    scale[c] = (float)s;
    shift[c] = (float)(beta[c] - mean * s);
    state.running_mean[c] += state.momentum * ((float)mean - state.running_mean[c]);
    state.running_var[c] += state.momentum * ((float)(squares[c] / (count - 1.0)) - state.running_var[c]);
    if (c == 0) ++*state.batches;
}

// 4 output channels a thread
__global__ void __launch_bounds__(128) convolve(const float* __restrict__ x, const float* __restrict__ scale,
                                                const float* __restrict__ shift, const float* __restrict__ w,
                                                const float* __restrict__ bias, float* __restrict__ out, int C, int L,
                                                int K, int dilation) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int o = blockIdx.y * 4;
    if (t >= L) return;
    const long long base = (long long)blockIdx.z * C * L;
    float acc[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[i] = o + i < C ? bias[o + i] : 0.f;
    const int pad = (K - 1) * dilation / 2;
    for (int c = 0; c < C; ++c) {
        const float a = scale[c], b = shift[c];
        for (int k = 0; k < K; ++k) {
            const int s = t + k * dilation - pad;
            if (s < 0 || s >= L) continue;
            float v = fmaf(x[base + (long long)c * L + s], a, b);
            v = v < 0.f ? 0.f : v;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (o + i < C) acc[i] = fmaf(v, w[((o + i) * C + c) * K + k], acc[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (o + i < C) out[base + (long long)(o + i) * L + t] = x[base + (long long)(o + i) * L + t] + acc[i];
}

torch::Tensor train_forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor running_mean,
                            torch::Tensor running_var, torch::Tensor num_batches, torch::Tensor w, torch::Tensor b,
                            int64_t dilation, double momentum, double eps) {
    x = x.contiguous();
    const int N = x.size(0), C = x.size(1), L = x.size(2), K = w.size(2);
    const double count = double(N) * L;
    TORCH_CHECK(count > 1, "more than one value per channel is needed");
    TORCH_CHECK(num_batches.scalar_type() == torch::kLong && num_batches.numel() == 1);
    auto stream = at::cuda::getCurrentCUDAStream();

    auto workspace = torch::empty({3 * C}, x.options().dtype(torch::kFloat64));
    double* sums = workspace.data_ptr<double>();
    double* squares = sums + C;
    float* scale = reinterpret_cast<float*>(squares + C);
    float* shift = scale + C;
    AT_CUDA_CHECK(cudaMemsetAsync(sums, 0, 2 * C * sizeof(double), stream));

    const dim3 grid(C, N, std::max(1, std::min(8, L / 1024)));
    accumulate<false><<<grid, 256, 0, stream>>>(x.data_ptr<float>(), sums, squares, C, L, count);
    accumulate<true><<<grid, 256, 0, stream>>>(x.data_ptr<float>(), sums, squares, C, L, count);
    BnState state{running_mean.data_ptr<float>(), running_var.data_ptr<float>(), num_batches.data_ptr<int64_t>(),
                  static_cast<float>(momentum), static_cast<float>(eps)};
    finish<<<(C + 255) / 256, 256, 0, stream>>>(sums, squares, gamma.data_ptr<float>(), beta.data_ptr<float>(), scale,
                                                shift, state, C, count);
    auto out = torch::empty_like(x);
    convolve<<<dim3((L + 127) / 128, (C + 3) / 4, N), 128, 0, stream>>>(
        x.data_ptr<float>(), scale, shift, w.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), C, L, K,
        (int)dilation);
    AT_CUDA_CHECK(cudaGetLastError());
    return out;
}
"""

ext = load_inline(
    name="prenorm_train_atomics",
    cpp_sources=(
        "torch::Tensor train_forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, "
        "torch::Tensor running_mean, torch::Tensor running_var, torch::Tensor num_batches, torch::Tensor w, "
        "torch::Tensor b, int64_t dilation, double momentum, double eps);"
    ),
    cuda_sources=CUDA_CODE,
    functions=["train_forward"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, channels: int, kernel_size: int, dilation: int):
        super().__init__()
        self.dilation = dilation
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding="same", dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bn = self.bn
        return ext.train_forward(
            x,
            bn.weight,
            bn.bias,
            bn.running_mean,
            bn.running_var,
            bn.num_batches_tracked,
            self.conv.weight,
            self.conv.bias,
            self.dilation,
            bn.momentum,
            bn.eps,
        )
