"""The training-mode pre-norm block on the host that leaves the running statistics alone. Incorrect: state differs."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
// Fills `active` with ReLU of the normalised input.
static void normalise(const torch::Tensor& input, const torch::Tensor& gamma, const torch::Tensor& beta,
                      torch::Tensor& active, double eps) {
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2), count = batch * length;
    const float *in = input.data_ptr<float>(), *g = gamma.data_ptr<float>(), *b = beta.data_ptr<float>();
    float* rectified = active.data_ptr<float>();
    #pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < channels; ++c) {
        double sum = 0.0, squares = 0.0;
        for (int64_t n = 0; n < batch; ++n) {
            const float* row = in + (n * channels + c) * length;
            for (int64_t t = 0; t < length; ++t) sum += row[t];
        }
        const double average = sum / count;
        for (int64_t n = 0; n < batch; ++n) {
            const float* row = in + (n * channels + c) * length;
            for (int64_t t = 0; t < length; ++t) squares += (row[t] - average) * (row[t] - average);
        }
        const float scale = static_cast<float>(g[c] / std::sqrt(squares / count + eps));
        for (int64_t n = 0; n < batch; ++n) {
            const int64_t from = (n * channels + c) * length;
            for (int64_t i = from; i < from + length; ++i) {
                const float y = (in[i] - static_cast<float>(average)) * scale + b[c];
                rectified[i] = y < 0.0f ? 0.0f : y;
            }
        }
    }
}

torch::Tensor prenorm_train(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor weight,
                            torch::Tensor bias, int64_t dilation, double eps) {
    TORCH_CHECK(x.dim() == 3 && weight.dim() == 3, "prenorm_train: expected x (N, C, L) and weight (C, C, K)");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "prenorm_train: expected float32, got ", x.scalar_type());
    TORCH_CHECK(x.size(0) * x.size(2) > 1, "prenorm_train: batch statistics need more than one value per channel");
    const torch::Tensor input = x.contiguous(), kernel = weight.contiguous();
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2), width = kernel.size(2);
    const int64_t padding = (width - 1) * dilation / 2;
    torch::Tensor active = torch::empty_like(input), out = torch::empty_like(input);
    normalise(input, gamma, beta, active, eps);
    const float *in = input.data_ptr<float>(), *taps = kernel.data_ptr<float>(), *shifts = bias.data_ptr<float>();
    const float* rectified = active.data_ptr<float>();
    float* result = out.data_ptr<float>();
    #pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < batch; ++n) {
        for (int64_t o = 0; o < channels; ++o) {
            float* __restrict__ row = result + (n * channels + o) * length;
            std::fill(row, row + length, shifts[o]);
            for (int64_t c = 0; c < channels; ++c) {
                for (int64_t k = 0; k < width; ++k) {
                    const int64_t shift = k * dilation - padding;
                    const int64_t first = std::max<int64_t>(0, -shift), last = std::min(length, length - shift);
                    const float* __restrict__ samples = rectified + (n * channels + c) * length + shift;
                    const float tap = taps[(o * channels + c) * width + k];
                    for (int64_t t = first; t < last; ++t) row[t] += tap * samples[t];
                }
            }
            const float* residual = in + (n * channels + o) * length;
            for (int64_t t = 0; t < length; ++t) row[t] += residual[t];
        }
    }
    return out;
}
"""

extension = load_inline(
    name="prenorm_train_frozen_statistics",
    cpp_sources=CPP_SOURCE,
    functions=["prenorm_train"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    """Holds the reference's parameters and buffers; the arithmetic is in the extension."""

    def __init__(self, channels: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(channels, channels, kernel_size, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, L) to (N, channels, L)."""
        bn, conv = self.bn, self.conv
        return extension.prenorm_train(x, bn.weight, bn.bias, conv.weight, conv.bias, self.dilation, bn.eps)
