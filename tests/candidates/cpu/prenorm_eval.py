"""x + Conv1d(ReLU(BatchNorm1d(x))) on the host with the running statistics. Correct in eval mode."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor prenorm_eval(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor mean,
                           torch::Tensor var, torch::Tensor weight, torch::Tensor bias, int64_t dilation, double eps) {
    TORCH_CHECK(x.dim() == 3 && weight.dim() == 3, "prenorm_eval: expected x (N, C, L) and weight (C, C, K)");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "prenorm_eval: expected float32, got ", x.scalar_type());
    const torch::Tensor input = x.contiguous(), kernel = weight.contiguous();
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2), width = kernel.size(2);
    const int64_t padding = (width - 1) * dilation / 2;
    torch::Tensor active = torch::empty_like(input), out = torch::empty_like(input);
    const float *in = input.data_ptr<float>(), *taps = kernel.data_ptr<float>(), *shifts = bias.data_ptr<float>();
    const float *g = gamma.data_ptr<float>(), *b = beta.data_ptr<float>();
    const float *m = mean.data_ptr<float>(), *v = var.data_ptr<float>();
    float *rectified = active.data_ptr<float>(), *result = out.data_ptr<float>();
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < batch * channels; ++r) {
        const int64_t c = r % channels;
        const float scale = static_cast<float>(g[c] / std::sqrt(v[c] + eps));
        for (int64_t i = r * length; i < (r + 1) * length; ++i) {
            const float y = (in[i] - m[c]) * scale + b[c];
            rectified[i] = y < 0.0f ? 0.0f : y;
        }
    }
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
    name="prenorm_eval",
    cpp_sources=CPP_SOURCE,
    functions=["prenorm_eval"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    """Holds the reference's parameters; the arithmetic is in the extension."""

    def __init__(self, channels: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(channels, channels, kernel_size, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, L) to (N, channels, L)."""
        bn, conv = self.bn, self.conv
        return extension.prenorm_eval(
            x, bn.weight, bn.bias, bn.running_mean, bn.running_var, conv.weight, conv.bias, self.dilation, bn.eps
        )
