"""AT_DISPATCH_FLOATING_TYPES with a scalar_t kernel that reads through PackedTensorAccessor32.

Task: causal_conv
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

template <typename scalar_t>
__global__ void causal_forward_kernel(
    const torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> input,
    const torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> weight,
    torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> output,
    int dilation) {
  const int n = blockIdx.z;
  const int o = blockIdx.y * blockDim.y + threadIdx.y;
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (o >= output.size(1) || t >= output.size(2)) return;

  const int width = weight.size(2);
  scalar_t total = 0;
  for (int k = 0; k < width; ++k) {
    const int source = t - (width - 1 - k) * dilation;
    if (source < 0) continue;
    for (int c = 0; c < input.size(1); ++c) {
      total += input[n][c][source] * weight[o][c][k];
    }
  }
  output[n][o][t] = total;
}

torch::Tensor causal_forward(torch::Tensor input, torch::Tensor weight, int64_t dilation) {
  TORCH_CHECK(input.dim() == 3, "expected (N, C, L), got ", input.dim(), " dimensions");
  TORCH_CHECK(input.size(1) == weight.size(1), "channel mismatch: ", input.sizes(), " vs ", weight.sizes());
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "dtype mismatch");

  auto output = torch::zeros({input.size(0), weight.size(0), input.size(-1)}, input.options());
  const dim3 block(64, 4);
  const dim3 grid((output.size(2) + block.x - 1) / block.x, (output.size(1) + block.y - 1) / block.y, output.size(0));

  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "causal_forward", ([&] {
    causal_forward_kernel<scalar_t><<<grid, block>>>(
        input.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        weight.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        output.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        static_cast<int>(dilation));
  }));
  return output;
}
"""

ext = load_inline(
    name="causal_accessors",
    cpp_sources=["torch::Tensor causal_forward(torch::Tensor input, torch::Tensor weight, int64_t dilation);"],
    cuda_sources=[source],
    functions=["causal_forward"],
)


class ModelNew(nn.Module):
    """Causal convolution; strides are taken care of by the accessors, so nothing has to be contiguous."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ext.causal_forward(x, self.conv.weight, self.dilation)
