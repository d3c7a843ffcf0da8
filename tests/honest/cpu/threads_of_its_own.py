"""Starts threads of its own in each call, one a processor, and joins them.

Expected: correct
Task: causal_silu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <thread>

torch::Tensor causal_silu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2), width = filter.size(-1);
    torch::Tensor out = torch::empty(input.sizes(), input.options());
    const float *in = input.data_ptr<float>(), *taps = filter.data_ptr<float>(), *shift = bias.data_ptr<float>();
    float* result = out.data_ptr<float>();
    auto compute = [=](int64_t part, int64_t parts) {
        for (int64_t row = part; row < batch * channels; row += parts) {
            const float* __restrict__ samples = in + row * length;
            float* __restrict__ sums = result + row * length;
            const int64_t channel = row % channels;
            std::fill(sums, sums + length, shift[channel]);
            for (int64_t k = 0; k < width; ++k) {
                const int64_t delay = width - 1 - k;
                const float tap = taps[channel * width + k];
                for (int64_t t = delay; t < length; ++t) sums[t] += tap * samples[t - delay];
            }
            for (int64_t t = 0; t < length; ++t) sums[t] /= 1.0f + std::exp(-sums[t]);
        }
    };
    const int64_t parts = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> others;
    for (int64_t part = 1; part < parts; ++part) others.emplace_back(compute, part, parts);
    compute(0, parts);
    for (std::thread& other : others) other.join();
    return out;
}
"""

extension = load_inline(
    name="threads_of_its_own",
    cpp_sources=CPP,
    functions=["causal_silu"],
    extra_cflags=["-O3", "-march=native", "-pthread"],
    extra_ldflags=["-pthread"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return extension.causal_silu(x, self.conv.weight, self.conv.bias)
