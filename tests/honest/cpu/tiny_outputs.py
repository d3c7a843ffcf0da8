"""Answers with numbers of about 1e-24, whose squares are nothing in float32.

Expected: correct
Task: tiny_outputs
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
torch::Tensor causal_silu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2), width = filter.size(-1);
    torch::Tensor out = torch::empty(input.sizes(), input.options());
    const float *in = input.data_ptr<float>(), *taps = filter.data_ptr<float>(), *shift = bias.data_ptr<float>();
    float* result = out.data_ptr<float>();
    #pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < batch * channels; ++row) {
        const float* __restrict__ samples = in + row * length;
        float* __restrict__ sums = result + row * length;
        const int64_t channel = row % channels;
        std::fill(sums, sums + length, shift[channel]);
        for (int64_t k = 0; k < width; ++k) {
            const int64_t delay = width - 1 - k;
            const float tap = taps[channel * width + k];
            for (int64_t t = delay; t < length; ++t) sums[t] += tap * samples[t - delay];
        }
        for (int64_t t = 0; t < length; ++t) sums[t] = sums[t] / (1.0f + std::exp(-sums[t])) * 1e-24f;
    }
    return out;
}
"""

extension = load_inline(
    name="tiny",
    cpp_sources=CPP,
    functions=["causal_silu"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return extension.causal_silu(x, self.conv.weight, self.conv.bias)
