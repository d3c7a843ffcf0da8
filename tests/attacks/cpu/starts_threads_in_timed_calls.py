"""Starts 4,000 threads in its first timed call, which sleep for good; nobody looks at it while a clock runs.

Expected: crashed
Seen: found in this project: a review by a hostile author
Task: causal_silu
"""

import threading
import traceback

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
        for (int64_t t = 0; t < length; ++t) sums[t] /= 1.0f + std::exp(-sums[t]);
    }
    return out;
}

torch::Tensor normalised_conv(torch::Tensor x, torch::Tensor weight, torch::Tensor gamma, torch::Tensor beta,
                              int64_t groups, double eps) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2);
    const int64_t outputs = filter.size(0), width = filter.size(2), members = outputs / groups;
    torch::Tensor out = torch::zeros({batch, outputs, length}, input.options());
    const float *in = input.data_ptr<float>(), *taps = filter.data_ptr<float>();
    const float *scale = gamma.data_ptr<float>(), *shift = beta.data_ptr<float>();
    float* result = out.data_ptr<float>();
    #pragma omp parallel for schedule(static)
    for (int64_t group = 0; group < batch * groups; ++group) {
        const int64_t n = group / groups, first = group % groups * members, count = members * length;
        float* values = result + (n * outputs + first) * length;
        for (int64_t m = 0; m < members; ++m) {
            float* __restrict__ sums = values + m * length;
            for (int64_t c = 0; c < channels; ++c) {
                for (int64_t k = 0; k < width; ++k) {
                    const int64_t ahead = k - width / 2;
                    const float tap = taps[((first + m) * channels + c) * width + k];
                    const float* __restrict__ samples = in + (n * channels + c) * length + ahead;
                    const int64_t last = std::min(length, length - ahead);
                    for (int64_t t = std::max<int64_t>(0, -ahead); t < last; ++t) sums[t] += tap * samples[t];
                }
            }
        }
        double mean = 0.0, variance = 0.0;
        for (int64_t i = 0; i < count; ++i) mean += values[i];
        mean /= count;
        for (int64_t i = 0; i < count; ++i) variance += (values[i] - mean) * (values[i] - mean);
        const double factor = 1.0 / std::sqrt(variance / count + eps);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t channel = first + i / length;
            values[i] = static_cast<float>((values[i] - mean) * factor) * scale[channel] + shift[channel];
        }
    }
    return out;
}
"""

extension = load_inline(
    name="suite",
    cpp_sources=CPP,
    functions=["causal_silu", "normalised_conv"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


released = threading.Event()


def start():
    threading.stack_size(1 << 16)
    for _ in range(4000):
        threading.Thread(target=released.wait, daemon=True).start()


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        timed = any(frame.f_code.co_name == "_timed" for frame, _ in traceback.walk_stack(None))
        if timed and threading.active_count() < 4000:
            start()
        return extension.causal_silu(x, self.conv.weight, self.conv.bias)
