"""The problem beside it, in plain C++. Correct."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

extension = load_inline(
    name="right",
    cpp_sources="""
torch::Tensor depthwise(torch::Tensor x, torch::Tensor weight) {
    const torch::Tensor input = x.contiguous(), taps = weight.contiguous();
    torch::Tensor out = torch::empty_like(input);
    const int64_t channels = input.size(1), length = input.size(2), rows = input.size(0) * channels;
    const float *in = input.data_ptr<float>(), *w = taps.data_ptr<float>();
    float* result = out.data_ptr<float>();
    for (int64_t row = 0; row < rows; ++row) {
        const float *samples = in + row * length, *tap = w + row % channels * 3;
        for (int64_t t = 0; t < length; ++t) {
            float sum = tap[1] * samples[t];
            if (t > 0) sum += tap[0] * samples[t - 1];
            if (t + 1 < length) sum += tap[2] * samples[t + 1];
            result[row * length + t] = sum;
        }
    }
    return out;
}
""",
    functions=["depthwise"],
    extra_cflags=["-O2"],
)


class ModelNew(nn.Module):
    """Holds the reference's parameters."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, L) to the same shape."""
        return extension.depthwise(x, self.conv.weight)
