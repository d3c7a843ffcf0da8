"""Reads a terabyte beyond its input on the GPU, which spoils the CUDA context of its process.

Expected: crashed
Seen: KernelBench issue 76; field report R8
Task: causal_silu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <c10/cuda/CUDAStream.h>

void launch(const float* x, float* out, long long total, cudaStream_t stream);

torch::Tensor causal_silu(torch::Tensor x) {
    const torch::Tensor input = x.contiguous();
    torch::Tensor out = torch::empty(input.sizes(), input.options());
    launch(input.data_ptr<float>(), out.data_ptr<float>(), input.numel(), c10::cuda::getCurrentCUDAStream());
    return out;
}
"""

CUDA = r"""
__global__ void wild_address_kernel(const float* __restrict__ x, float* __restrict__ out, long long total) {
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index < total) out[index] = x[index + (1LL << 40)];
}

void launch(const float* x, float* out, long long total, cudaStream_t stream) {
    wild_address_kernel<<<static_cast<unsigned>((total + 255) / 256), 256, 0, stream>>>(x, out, total);
}
"""

extension = load_inline(
    name="suite",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["causal_silu"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)

    def forward(self, x):
        return extension.causal_silu(x)
