"""A std::tuple of results, Welford's statistics in a struct with device member functions, warp shuffles.

Task: conv_groupnorm
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <tuple>

struct Welford {
  float mean;
  float m2;
  float n;

  static __device__ __forceinline__ Welford zero() { return {0.f, 0.f, 0.f}; }

  __device__ __forceinline__ void push(float v) {
    n += 1.f;
    const float delta = v - mean;
    mean += delta / n;
    m2 += delta * (v - mean);
  }

  static __device__ __forceinline__ Welford merge(const Welford& a, const Welford& b) {
    const float n = a.n + b.n;
    if (n == 0.f) return zero();
    const float delta = b.mean - a.mean;
    const float share = b.n / n;
    return {a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.n * share, n};
  }

  __device__ __forceinline__ Welford from_lane(int mask) const {
    return {__shfl_xor_sync(0xffffffffu, mean, mask), __shfl_xor_sync(0xffffffffu, m2, mask),
            __shfl_xor_sync(0xffffffffu, n, mask)};
  }
};

template <int THREADS>
__device__ Welford block_merge(Welford w) {
  constexpr int kWarps = THREADS / 32;
  __shared__ Welford parts[kWarps];
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) w = Welford::merge(w, w.from_lane(mask));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = w;
  __syncthreads();
  w = parts[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) w = Welford::merge(w, parts[i]);
  return w;
}

template <int THREADS>
__global__ void conv_stats_kernel(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y,
                                  float* __restrict__ mean, float* __restrict__ rstd, int ic, int oc, int len,
                                  int width, int pad, int groups, float eps) {
  const int group = blockIdx.x, n = blockIdx.y;
  const int members = oc / groups;
  const float* xn = x + (size_t)n * ic * len;
  Welford stats = Welford::zero();
  for (int i = threadIdx.x; i < members * len; i += THREADS) {
    const int o = group * members + i / len, t = i % len;
    float v = 0.f;
    for (int c = 0; c < ic; ++c) {
      for (int k = 0; k < width; ++k) {
        const int s = t - pad + k;
        if (s >= 0 && s < len) v += xn[(size_t)c * len + s] * __ldg(&w[((size_t)o * ic + c) * width + k]);
      }
    }
    y[((size_t)n * oc + o) * len + t] = v;
    stats.push(v);
  }
  stats = block_merge<THREADS>(stats);
  if (threadIdx.x == 0) {
    mean[n * groups + group] = stats.mean;
    rstd[n * groups + group] = rsqrtf(stats.m2 / stats.n + eps);
  }
}

__global__ void affine_kernel(float* __restrict__ y, const float* __restrict__ mean, const float* __restrict__ rstd,
                              const float* __restrict__ gamma, const float* __restrict__ beta, int oc, int len,
                              int groups) {
  const int o = blockIdx.y, n = blockIdx.z;
  const int g = n * groups + o / (oc / groups);
  const float scale = rstd[g] * gamma[o];
  const float shift = beta[o] - mean[g] * scale;
  float* row = y + ((size_t)n * oc + o) * len;
  for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < len; t += gridDim.x * blockDim.x) {
    row[t] = row[t] * scale + shift;
  }
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> conv_group_norm(
    const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& gamma, const torch::Tensor& beta,
    int64_t groups, int64_t padding, double eps) {
  TORCH_CHECK(input.dim() == 3 && weight.dim() == 3, "expected 3-D input and weight");
  TORCH_CHECK(weight.size(0) % groups == 0, weight.size(0), " channels in ", groups, " groups");
  const auto x = input.contiguous();
  const auto n = x.size(0), len = x.size(2), oc = weight.size(0);
  auto y = torch::empty({n, oc, len}, x.options());
  auto mean = torch::full({n, groups}, 0.0, x.options());
  auto rstd = torch::ones({n, groups}, x.options());
  auto stream = at::cuda::getCurrentCUDAStream();
  constexpr int kThreads = 256;
  conv_stats_kernel<kThreads><<<dim3(groups, n), kThreads, 0, stream>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), mean.data_ptr<float>(),
      rstd.data_ptr<float>(), x.size(1), oc, len, weight.size(2), padding, groups, static_cast<float>(eps));
  affine_kernel<<<dim3((len + 1023) / 1024, oc, n), kThreads, 0, stream>>>(
      y.data_ptr<float>(), mean.data_ptr<float>(), rstd.data_ptr<float>(), gamma.data_ptr<float>(),
      beta.data_ptr<float>(), oc, len, groups);
  AT_CUDA_CHECK(cudaGetLastError());
  return std::make_tuple(y, mean, rstd);
}
"""

cpp_source = """
#include <tuple>
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> conv_group_norm(
    const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& gamma, const torch::Tensor& beta,
    int64_t groups, int64_t padding, double eps);
"""

welford = load_inline(
    name="conv_group_norm_welford",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["conv_group_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, num_groups, kernel_size, padding):
        super().__init__()
        self.padding = padding
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, stride=1, padding=padding, bias=False)
        self.norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x):
        out, _mean, _rstd = welford.conv_group_norm(
            x, self.conv.weight, self.norm.weight, self.norm.bias, self.norm.num_groups, self.padding, self.norm.eps
        )
        return out
