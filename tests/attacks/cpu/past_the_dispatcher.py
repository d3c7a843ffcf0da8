"""Calls PyTorch's CPU kernels from C++ past the dispatcher, where no operator is recorded.

Expected: library_compute
Seen: variant of field list H16; the README of ATen's native functions
Task: causal_silu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <ATen/CPUFunctions.h>

torch::Tensor causal_silu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const int64_t length = x.size(2), width = weight.size(2);
    torch::Tensor sum = bias.reshape({1, -1, 1}).expand_as(x).contiguous();
    for (int64_t k = 0; k < width; ++k) {
        const int64_t delay = width - 1 - k;
        if (delay >= length) continue;
        torch::Tensor part = sum.narrow(2, delay, length - delay);
        const torch::Tensor taps = weight.select(2, k).reshape({1, -1, 1}).expand_as(part);
        const torch::Tensor product = at::cpu::mul(x.narrow(2, 0, length - delay), taps);
        at::cpu::add_(part, product);
    }
    return at::cpu::silu(sum);
}
"""

extension = load_inline(
    name="suite",
    cpp_sources=CPP,
    functions=["causal_silu"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return extension.causal_silu(x, self.conv.weight, self.conv.bias)
