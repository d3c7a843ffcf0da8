"""cuda_bf16.h: every float is split into two bf16, three wmma products bring the lost bits back.

Task: causal_conv
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = r"""
#include <torch/extension.h>
#include <cuda_bf16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int BLOCK_O = 32, BLOCK_T = 64, BLOCK_K = 32;
constexpr int PAD = 8;

// value = hi + lo up to 2^-16 of its size; bf16 has float's range, so nothing overflows
__device__ __forceinline__ void split(float value, __nv_bfloat16& hi, __nv_bfloat16& lo) {
    hi = __float2bfloat16_rn(value);
    lo = __float2bfloat16_rn(value - __bfloat162float(hi));
}

__global__ void pack_weight(const float* __restrict__ w, __nv_bfloat16* __restrict__ hi,
                            __nv_bfloat16* __restrict__ lo, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) split(w[i], hi[i], lo[i]);
}

__global__ void __launch_bounds__(256)
causal_split_kernel(const float* __restrict__ x, const __nv_bfloat16* __restrict__ w_hi,
                    const __nv_bfloat16* __restrict__ w_lo, float* __restrict__ y, int C, int O, int L, int K,
                    int dilation) {
    __shared__ __align__(32) __nv_bfloat16 a_hi[BLOCK_O][BLOCK_K + PAD], a_lo[BLOCK_O][BLOCK_K + PAD];
    __shared__ __align__(32) __nv_bfloat16 b_hi[BLOCK_K][BLOCK_T + PAD], b_lo[BLOCK_K][BLOCK_T + PAD];
    __shared__ __align__(32) float c_tile[BLOCK_O][BLOCK_T + PAD];

    const int warp = threadIdx.x / 32;       // 2 x 4 warps of 16 x 16
    const int row = warp / 4 * 16, col = warp % 4 * 16;
    const int t0 = blockIdx.x * BLOCK_T, o0 = blockIdx.y * BLOCK_O;
    const int depth = C * K;
    x += (long long)blockIdx.z * C * L;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.f);
    for (int j0 = 0; j0 < depth; j0 += BLOCK_K) {
        for (int i = threadIdx.x; i < BLOCK_O * BLOCK_K; i += blockDim.x) {
            const int r = i / BLOCK_K, j = i % BLOCK_K;
            const bool in = o0 + r < O && j0 + j < depth;
            const long long at = (long long)(o0 + r) * depth + j0 + j;
            a_hi[r][j] = in ? w_hi[at] : __float2bfloat16_rn(0.f);
            a_lo[r][j] = in ? w_lo[at] : __float2bfloat16_rn(0.f);
        }
        for (int i = threadIdx.x; i < BLOCK_K * BLOCK_T; i += blockDim.x) {
            const int r = i / BLOCK_T, t = t0 + i % BLOCK_T, j = j0 + r;
            const int s = t - (K - 1 - j % K) * dilation;
            float v = 0.f;
            if (j < depth && t < L && s >= 0) v = x[(long long)(j / K) * L + s];
            split(v, b_hi[r][i % BLOCK_T], b_lo[r][i % BLOCK_T]);
        }
        __syncthreads();
        for (int k = 0; k < BLOCK_K; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> ah, al;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> bh, bl;
            wmma::load_matrix_sync(ah, &a_hi[row][k], BLOCK_K + PAD);
            wmma::load_matrix_sync(al, &a_lo[row][k], BLOCK_K + PAD);
            wmma::load_matrix_sync(bh, &b_hi[k][col], BLOCK_T + PAD);
            wmma::load_matrix_sync(bl, &b_lo[k][col], BLOCK_T + PAD);
            wmma::mma_sync(acc, al, bh, acc);
            wmma::mma_sync(acc, ah, bl, acc);
            wmma::mma_sync(acc, ah, bh, acc);
        }
        __syncthreads();
    }
    wmma::store_matrix_sync(&c_tile[row][col], acc, BLOCK_T + PAD, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < BLOCK_O * BLOCK_T; i += blockDim.x) {
        const int o = o0 + i / BLOCK_T, t = t0 + i % BLOCK_T;
        if (o < O && t < L) y[((long long)blockIdx.z * O + o) * L + t] = c_tile[i / BLOCK_T][i % BLOCK_T];
    }
}

std::vector<torch::Tensor> pack(torch::Tensor w) {
    w = w.contiguous();
    auto hi = torch::empty_like(w, w.options().dtype(torch::kBFloat16));
    auto lo = torch::empty_like(hi);
    const int n = w.numel();
    pack_weight<<<(n + 255) / 256, 256>>>(w.data_ptr<float>(), reinterpret_cast<__nv_bfloat16*>(hi.data_ptr()),
                                          reinterpret_cast<__nv_bfloat16*>(lo.data_ptr()), n);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "pack_weight did not start");
    return {hi, lo};
}

torch::Tensor causal_conv(torch::Tensor x, torch::Tensor hi, torch::Tensor lo, int64_t dilation) {
    x = x.contiguous();
    TORCH_CHECK(hi.scalar_type() == torch::kBFloat16, "pack the weight first");
    auto y = torch::empty({x.size(0), hi.size(0), x.size(2)}, x.options());
    const dim3 grid((x.size(2) + BLOCK_T - 1) / BLOCK_T, (hi.size(0) + BLOCK_O - 1) / BLOCK_O, x.size(0));
    causal_split_kernel<<<grid, 256>>>(x.data_ptr<float>(),
                                       reinterpret_cast<const __nv_bfloat16*>(hi.data_ptr<at::BFloat16>()),
                                       reinterpret_cast<const __nv_bfloat16*>(lo.data_ptr<at::BFloat16>()),
                                       y.data_ptr<float>(), x.size(1), hi.size(0), x.size(2), hi.size(2), dilation);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "causal_split_kernel did not start");
    return y;
}
"""

bf16x3 = load_inline(
    name="causal_bf16x3",
    cpp_sources="""
std::vector<torch::Tensor> pack(torch::Tensor w);
torch::Tensor causal_conv(torch::Tensor x, torch::Tensor hi, torch::Tensor lo, int64_t dilation);
""",
    cuda_sources=src,
    functions=["pack", "causal_conv"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)
        self._packed = None

    def forward(self, x):
        if self._packed is None:
            self._packed = bf16x3.pack(self.conv.weight)
        hi, lo = self._packed
        return bf16x3.causal_conv(x, hi, lo, self.dilation)
