import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cstring>
#include <vector>

constexpr int OCB = 8;      // output channels of a register tile
constexpr int TB = 48;      // times of a register tile
constexpr int SLAB = 240;   // times of a slab of x: five register tiles

// w is (OC / 8, IC, K, 8); x is (N, IC, L); out is (N, OC, L)
torch::Tensor causal_conv(torch::Tensor x, torch::Tensor w, int64_t dilation) {
    TORCH_CHECK(x.is_contiguous() && w.is_contiguous(), "inputs must be contiguous");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && w.scalar_type() == torch::kFloat32, "inputs must be float32");
    const int64_t N = x.size(0), IC = x.size(1), L = x.size(2), K = w.size(2), OC = w.size(0) * OCB;
    TORCH_CHECK(w.size(1) == IC, "channels do not fit");
    torch::Tensor out = torch::empty({N, OC, L}, x.options());
    const float* X = x.data_ptr<float>();
    const float* W = w.data_ptr<float>();
    float* O = out.data_ptr<float>();
    const int64_t P = (K - 1) * dilation, slabs = (L + SLAB - 1) / SLAB, row = SLAB + P + 16;
#pragma omp parallel
    {
        std::vector<float> scratch(IC * row);
#pragma omp for schedule(static)
        for (int64_t item = 0; item < N * slabs; ++item) {
            const int64_t n = item / slabs, t0 = item % slabs * SLAB, T = std::min<int64_t>(SLAB, L - t0);
            // scratch[c][i] is x[n, c, t0 - P + i], zero outside
            for (int64_t c = 0; c < IC; ++c) {
                float* s = scratch.data() + c * row;
                const float* xr = X + (n * IC + c) * L;
                const int64_t zeros = std::clamp<int64_t>(P - t0, 0, P + T);
                std::fill(s, s + zeros, 0.0f);
                std::copy(xr + t0 - P + zeros, xr + t0 + T, s + zeros);
                std::fill(s + P + T, s + row, 0.0f);
            }
            for (int64_t ob = 0; ob < OC / OCB; ++ob) {
                for (int64_t t = 0; t < T; t += TB) {
                    float acc[OCB][TB] = {};
                    const float* wp = W + ob * IC * K * OCB;
                    for (int64_t c = 0; c < IC; ++c) {
                        for (int64_t k = 0; k < K; ++k, wp += OCB) {
                            const float* s = scratch.data() + c * row + t + k * dilation;
                            for (int o = 0; o < OCB; ++o)
                                for (int j = 0; j < TB; ++j) acc[o][j] += wp[o] * s[j];
                        }
                    }
                    const int64_t width = std::min<int64_t>(TB, T - t);
                    for (int o = 0; o < OCB; ++o)
                        std::memcpy(O + (n * OC + ob * OCB + o) * L + t0 + t, acc[o], width * sizeof(float));
                }
            }
        }
    }
    return out;
}
"""

extension = load_inline(
    name="causal_conv",
    cpp_sources=CPP,
    functions=["causal_conv"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)

    def prepare(self):
        w = self.conv.weight.detach()
        oc, ic, k = w.shape
        self.packed = w.reshape(oc // 8, 8, ic, k).permute(0, 2, 3, 1).contiguous()

    def forward(self, x):
        return extension.causal_conv(x, self.packed, self.dilation)
