"""Conv1d and GroupNorm on the host without the norm's weight and bias. Incorrect."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
// One row of the convolution: out[t] = sum over c, k of taps[c, k] * in[c, t + k - padding].
static void convolve_row(const float* in, const float* taps, float* __restrict__ out, int64_t channels,
                         int64_t width, int64_t length, int64_t padding) {
    std::fill(out, out + length, 0.0f);
    // Sums of 16 channels first: one running sum of all 384 products would round more.
    std::vector<float> partial(length);
    float* __restrict__ sums = partial.data();
    for (int64_t c = 0; c < channels; ++c) {
        for (int64_t k = 0; k < width; ++k) {
            const int64_t shift = k - padding;
            const int64_t first = std::max<int64_t>(0, -shift), last = std::min<int64_t>(length, length - shift);
            const float* __restrict__ samples = in + c * length + shift;
            const float tap = taps[c * width + k];
            for (int64_t t = first; t < last; ++t) sums[t] += tap * samples[t];
        }
        if (c % 16 != 15 && c + 1 != channels) continue;
        for (int64_t t = 0; t < length; ++t) out[t] += sums[t];
        std::fill(partial.begin(), partial.end(), 0.0f);
    }
}

torch::Tensor conv_groupnorm(torch::Tensor x, torch::Tensor weight, int64_t groups, int64_t padding,
                             double eps) {
    TORCH_CHECK(x.dim() == 3 && weight.dim() == 3, "conv_groupnorm: expected x (N, C, L) and weight (O, C, K)");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "conv_groupnorm: expected float32, got ", x.scalar_type());
    TORCH_CHECK(weight.size(2) == 2 * padding + 1, "conv_groupnorm: the padding must keep the length");
    const torch::Tensor input = x.contiguous(), kernel = weight.contiguous();
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2);
    const int64_t outputs = kernel.size(0), width = kernel.size(2), members = outputs / groups;
    torch::Tensor out = torch::empty({batch, outputs, length}, input.options());
    const float *in = input.data_ptr<float>(), *taps = kernel.data_ptr<float>();
    float* result = out.data_ptr<float>();
    #pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < batch; ++n) {
        for (int64_t g = 0; g < groups; ++g) {
            float* group = result + (n * outputs + g * members) * length;
            for (int64_t m = 0; m < members; ++m) {
                convolve_row(in + n * channels * length, taps + (g * members + m) * channels * width,
                             group + m * length, channels, width, length, padding);
            }
            const int64_t count = members * length;
            double sum = 0.0, squares = 0.0;
            for (int64_t i = 0; i < count; ++i) sum += group[i];
            const double mean = sum / count;
            for (int64_t i = 0; i < count; ++i) squares += (group[i] - mean) * (group[i] - mean);
            const float rstd = static_cast<float>(1.0 / std::sqrt(squares / count + eps));
            for (int64_t i = 0; i < count; ++i) group[i] = (group[i] - static_cast<float>(mean)) * rstd;
        }
    }
    return out;
}
"""

extension = load_inline(
    name="groupnorm_no_affine",
    cpp_sources=CPP_SOURCE,
    functions=["conv_groupnorm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    """Holds the reference's parameters; the arithmetic is in the extension."""

    def __init__(self, in_channels: int, out_channels: int, num_groups: int, kernel_size: int, padding: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in_channels, L) to (N, out_channels, L)."""
        norm = self.norm
        return extension.conv_groupnorm(x, self.conv.weight, norm.num_groups, self.conv.padding[0], norm.eps)
