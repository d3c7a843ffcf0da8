"""Views and copies on the host side: permute, transpose, reshape, narrow, select, slice, copy_, zero_, to.

Task: prenorm_dilated_residual_eval
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <vector>

// h: (N, L + 2 * pad, C) channels last, zero outside; w: (K, C_in, C_out)
__global__ void norm_relu_to_nlc(const float* __restrict__ x, const float* __restrict__ affine, float* __restrict__ h,
                                 int C, int L, int pad) {
    __shared__ float tile[32][33];
    const int n = blockIdx.z;
    const int t0 = blockIdx.x * 32, c0 = blockIdx.y * 32;
    for (int r = threadIdx.y; r < 32; r += 8) {
        const int c = c0 + r, t = t0 + threadIdx.x;
        if (c < C && t < L) {
            const float v = x[((long long)n * C + c) * L + t] * affine[c] + affine[C + c];
            tile[r][threadIdx.x] = v <= 0.0f ? 0.0f : v;
        }
    }
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += 8) {
        const int t = t0 + r, c = c0 + threadIdx.x;
        if (c < C && t < L) h[((long long)n * (L + 2 * pad) + pad + t) * C + c] = tile[threadIdx.x][r];
    }
}

__global__ void conv_nlc(const float* __restrict__ h, const float* __restrict__ w, const float* __restrict__ bias,
                         float* __restrict__ out, int C, int L, int K, int dilation, int pad) {
    extern __shared__ float row[];
    const int t = blockIdx.x, n = blockIdx.y;
    const float* hn = h + (long long)n * (L + 2 * pad) * C;
    for (int i = threadIdx.x; i < K * C; i += blockDim.x) {
        row[i] = hn[(long long)(t + i / C * dilation) * C + i % C];
    }
    __syncthreads();
    for (int o = threadIdx.x; o < C; o += blockDim.x) {
        float acc = bias[o];
        for (int j = 0; j < K * C; ++j) acc += row[j] * w[(long long)j * C + o];
        out[((long long)n * L + t) * C + o] = acc;
    }
}

// out (N, C, L) = x + y^T
__global__ void add_transposed(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out,
                               int C, int L, long long total) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int t = i % L, c = i / L % C;
    out[i] = x[i] + y[(i / L / C * L + t) * C + c];
}

__global__ void fold(const float* __restrict__ stats, float* __restrict__ affine, int C, float eps) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    const float scale = stats[2 * C + c] / sqrtf(stats[C + c] + eps);
    affine[c] = scale;
    affine[C + c] = stats[3 * C + c] - stats[c] * scale;
}

torch::Tensor block_forward(torch::Tensor x, std::vector<torch::Tensor> stats, torch::Tensor weight,
                            torch::Tensor bias, int64_t dilation, double eps) {
    TORCH_CHECK(stats.size() == 4, "mean, var, gamma and beta expected, got ", stats.size());
    x = x.contiguous();
    const auto sizes = x.sizes().vec();
    const int64_t N = sizes[0], C = sizes[1], L = sizes[2], K = weight.size(-1);
    const int64_t pad = (K - 1) * dilation / 2;
    const auto stream = at::cuda::getCurrentCUDAStream();

    // The four vectors side by side, in float whatever they were stored in.
    auto packed = torch::empty({4, C}, x.options());
    for (int64_t i = 0; i < 4; ++i) packed.select(0, i).copy_(stats[i].to(torch::kFloat32).view({C}));
    auto affine = torch::empty({2 * C}, x.options());
    fold<<<(C + 127) / 128, 128, 0, stream>>>(packed.data_ptr<float>(), affine.mutable_data_ptr<float>(), C, eps);

    // (O, I, K) -> (K, I, O)
    auto w = weight.permute({2, 1, 0}).contiguous();
    TORCH_CHECK(w.stride(0) == C * C && w.stride(2) == 1, "unexpected strides ", w.strides());

    auto h = torch::empty({N, L + 2 * pad, C}, x.options());
    h.narrow(1, 0, pad).zero_();
    h.slice(1, pad + L).zero_();
    const dim3 tiles((L + 31) / 32, (C + 31) / 32, N);
    norm_relu_to_nlc<<<tiles, dim3(32, 8), 0, stream>>>(x.const_data_ptr<float>(), affine.const_data_ptr<float>(),
                                                        h.mutable_data_ptr<float>(), C, L, pad);

    auto y = torch::empty({N * L, C}, x.options()).reshape({N, L, C});
    const size_t shared = K * C * x.element_size();
    conv_nlc<<<dim3(L, N), 256, shared, stream>>>(h.const_data_ptr<float>(), w.const_data_ptr<float>(),
                                                  bias.const_data_ptr<float>(), y.mutable_data_ptr<float>(), C, L, K,
                                                  dilation, pad);
    auto out = torch::empty_like(y.transpose(1, 2), at::MemoryFormat::Contiguous);
    const long long total = out.numel();
    add_transposed<<<(total + 255) / 256, 256, 0, stream>>>(x.const_data_ptr<float>(), y.const_data_ptr<float>(),
                                                            out.mutable_data_ptr<float>(), C, L, total);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "a launch failed for sizes ", x.sizes());
    return out.unsqueeze(0).squeeze(0);
}
"""

ext = load_inline(
    name="prenorm_views",
    cpp_sources="""
torch::Tensor block_forward(torch::Tensor x, std::vector<torch::Tensor> stats, torch::Tensor weight,
                            torch::Tensor bias, int64_t dilation, double eps);
""",
    cuda_sources=source,
    functions=["block_forward"],
)


class ModelNew(nn.Module):
    def __init__(self, channels: int, kernel_size: int, dilation: int):
        super().__init__()
        self.dilation = dilation
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding=dilation, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bn = self.bn
        stats = [bn.running_mean, bn.running_var, bn.weight, bn.bias]
        return ext.block_forward(x, stats, self.conv.weight, self.conv.bias, self.dilation, bn.eps)
