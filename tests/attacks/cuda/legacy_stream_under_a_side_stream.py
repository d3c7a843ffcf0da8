"""Launches 400 times on the legacy default stream while another stream is the current one.

Expected: correct
Seen: pytorch/helion pull request 2994; flashinfer-bench pull request 427; field report R22
Time: at least 1 ms
Task: causal_silu
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
void launch(const float* x, const float* weight, const float* bias, float* out, long long total, int channels,
            int length, int width);

torch::Tensor causal_silu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t repeats) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    torch::Tensor out = torch::empty(input.sizes(), input.options());
    for (int64_t i = 0; i < repeats; ++i) {
        launch(input.data_ptr<float>(), filter.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(),
               input.numel(), input.size(1), input.size(2), filter.size(2));
    }
    return out;
}
"""

CUDA = r"""
__global__ void causal_silu_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                                   const float* __restrict__ bias, float* __restrict__ out, long long total,
                                   int channels, int length, int width) {
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const int t = index % length, channel = index / length % channels;
    float sum = bias[channel];
    for (int k = 0; k < width; ++k) {
        const int delay = width - 1 - k;
        if (delay <= t) sum += weight[channel * width + k] * x[index - delay];
    }
    out[index] = sum / (1.0f + expf(-sum));
}

void launch(const float* x, const float* weight, const float* bias, float* out, long long total, int channels,
            int length, int width) {
    const unsigned blocks = static_cast<unsigned>((total + 255) / 256);
    causal_silu_kernel<<<blocks, 256>>>(x, weight, bias, out, total, channels, length, width);
}
"""

extension = load_inline(
    name="suite",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["causal_silu"],
)


SIDE = []


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        if not SIDE:
            SIDE.append(torch.cuda.Stream())
        with torch.cuda.stream(SIDE[0]):
            return extension.causal_silu(x, self.conv.weight, self.conv.bias, 400)
