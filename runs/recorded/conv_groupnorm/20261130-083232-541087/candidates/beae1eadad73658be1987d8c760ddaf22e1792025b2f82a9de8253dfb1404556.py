import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <vector>

typedef float vec __attribute__((vector_size(64)));
typedef float loose __attribute__((vector_size(64), aligned(4), may_alias));  // the same in memory, anywhere

constexpr int G = 8;    // channels of a group, and of a register tile
constexpr int NV = 3;   // vectors of a register tile, 16 Winograd tiles each
constexpr int TB = 16 * NV;
constexpr int M = 4, K = 3, P = M + K - 1;  // outputs, taps and products of a Winograd tile
constexpr int ICB = 32;  // channels that are summed before their sum is added to the others'

inline vec even(vec a, vec b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
inline vec odd(vec a, vec b) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
inline vec zip_low(vec a, vec b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline vec zip_high(vec a, vec b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// m[8][48] = sum over channels of w[channel][8] * x[channel][48]; blocks of channels keep the rounding small
template <int V>
void products(const float* x, const float* w, int64_t channels, float* m) {
    for (int64_t begin = 0; begin < channels; begin += ICB) {
        vec acc[G][V] = {};
        for (int64_t c = begin; c < std::min(begin + ICB, channels); ++c, x += TB, w += G) {
            vec xv[V];
            for (int v = 0; v < V; ++v) xv[v] = *(const loose*)(x + 16 * v);
            for (int i = 0; i < G; ++i)
                for (int v = 0; v < V; ++v) acc[i][v] += w[i] * xv[v];
        }
        for (int i = 0; i < G; ++i)
            for (int v = 0; v < V; ++v) {
                loose* to = (loose*)(m + i * TB + 16 * v);
                *to = begin == 0 ? acc[i][v] : *to + acc[i][v];
            }
    }
}

// 16 Winograd tiles of one channel; to[p * step] receives product p's operand
inline void transform_input(const float* row, float* to, int64_t step) {
    vec r[8], d[P];
    for (int i = 0; i < 4; ++i) r[i] = *(const loose*)(row + 16 * i), r[4 + i] = *(const loose*)(row + 4 + 16 * i);
    const vec e0 = even(r[0], r[1]), e1 = even(r[2], r[3]), o0 = odd(r[0], r[1]), o1 = odd(r[2], r[3]);
    d[0] = even(e0, e1), d[1] = even(o0, o1), d[2] = odd(e0, e1), d[3] = odd(o0, o1);
    d[4] = even(even(r[4], r[5]), even(r[6], r[7])), d[5] = even(odd(r[4], r[5]), odd(r[6], r[7]));
    const vec a = d[4] - 4 * d[2], b = d[3] - 4 * d[1], c = d[4] - d[2], e = 2 * (d[3] - d[1]);
    *(loose*)(to + 0 * step) = 4 * d[0] - 5 * d[2] + d[4];
    *(loose*)(to + 1 * step) = a + b;
    *(loose*)(to + 2 * step) = a - b;
    *(loose*)(to + 3 * step) = c + e;
    *(loose*)(to + 4 * step) = c - e;
    *(loose*)(to + 5 * step) = 4 * d[1] - 5 * d[3] + d[5];
}

// 64 outputs of one channel from the products m[p * G * TB]
inline void transform_output(const float* m, float* y) {
    vec q[P];
    for (int p = 0; p < P; ++p) q[p] = *(const loose*)(m + p * G * TB);
    const vec s1 = q[1] + q[2], d1 = q[1] - q[2], s2 = q[3] + q[4], d2 = q[3] - q[4];
    const vec y0 = q[0] + s1 + s2, y1 = d1 + 2 * d2, y2 = s1 + 4 * s2, y3 = d1 + 8 * d2 + q[5];
    const vec a0 = zip_low(y0, y2), a1 = zip_high(y0, y2), b0 = zip_low(y1, y3), b1 = zip_high(y1, y3);
    *(loose*)(y + 0) = zip_low(a0, b0), *(loose*)(y + 16) = zip_high(a0, b0);
    *(loose*)(y + 32) = zip_low(a1, b1), *(loose*)(y + 48) = zip_high(a1, b1);
}

// w is (OC / 8, P, IC, 8); gamma and beta are (OC); x is (N, IC, L)
torch::Tensor conv_groupnorm(torch::Tensor x, torch::Tensor w, torch::Tensor gamma, torch::Tensor beta, double eps) {
    TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat32, "x must be contiguous float32");
    const int64_t N = x.size(0), IC = x.size(1), L = x.size(2), groups = w.size(0);
    TORCH_CHECK(w.size(1) == P && w.size(2) == IC, "the weights do not fit");
    torch::Tensor out = torch::empty({N, groups * G, L}, x.options());
    const float *X = x.data_ptr<float>(), *W = w.data_ptr<float>();
    const float *gm = gamma.data_ptr<float>(), *bt = beta.data_ptr<float>();
    float* O = out.data_ptr<float>();
    const int64_t stride = (L + 16 * M - 1) / (16 * M) * (16 * M), tiles = stride / M, panels = (tiles + TB - 1) / TB;
#pragma omp parallel
    {
        // operands[panel][p][channel][48]
        std::vector<float> row(stride + 80), operands(panels * P * IC * TB), products_of(P * G * TB), sums(G * stride);
        int64_t loaded = -1;
#pragma omp for schedule(static)
        for (int64_t item = 0; item < N * groups; ++item) {
            const int64_t n = item / groups, g = item % groups;
            if (n != loaded) {
                for (int64_t c = 0; c < IC; ++c) {
                    std::copy_n(X + (n * IC + c) * L, L, row.data() + 1);
                    for (int64_t q = 0; q < tiles; q += 16)
                        transform_input(row.data() + q * M, operands.data() + ((q / TB * P) * IC + c) * TB + q % TB, IC * TB);
                }
                loaded = n;
            }
            for (int64_t q = 0; q < tiles; q += TB) {
                const int64_t vectors = std::min<int64_t>(NV, (tiles - q) / 16);
                for (int p = 0; p < P; ++p) {
                    const float* xp = operands.data() + (q / TB * P + p) * IC * TB;
                    const float* wp = W + (g * P + p) * IC * G;
                    float* m = products_of.data() + p * G * TB;
                    if (vectors == 3) products<3>(xp, wp, IC, m);
                    if (vectors == 2) products<2>(xp, wp, IC, m);
                    if (vectors == 1) products<1>(xp, wp, IC, m);
                }
                for (int i = 0; i < G; ++i)
                    for (int64_t v = 0; v < vectors; ++v)
                        transform_output(products_of.data() + i * TB + 16 * v, sums.data() + i * stride + (q + 16 * v) * M);
            }
            double total = 0, square = 0;
            for (int i = 0; i < G; ++i) {
                const float* y = sums.data() + i * stride;
                float part = 0;
#pragma omp simd reduction(+ : part)
                for (int64_t t = 0; t < L; ++t) part += y[t];
                total += part;
            }
            const float mean = total / (G * L);
            for (int i = 0; i < G; ++i) {
                const float* y = sums.data() + i * stride;
                float part = 0;
#pragma omp simd reduction(+ : part)
                for (int64_t t = 0; t < L; ++t) part += (y[t] - mean) * (y[t] - mean);
                square += part;
            }
            const double scale = 1.0 / std::sqrt(square / (G * L) + eps);
            for (int i = 0; i < G; ++i) {
                const float factor = gm[g * G + i] * scale, shift = bt[g * G + i];
                const float* y = sums.data() + i * stride;
                float* o = O + (n * groups * G + g * G + i) * L;
#pragma omp simd
                for (int64_t t = 0; t < L; ++t) o[t] = (y[t] - mean) * factor + shift;
            }
        }
    }
    return out;
}
"""

extension = load_inline(
    name="conv_groupnorm",
    cpp_sources=CPP,
    functions=["conv_groupnorm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, num_groups, kernel_size, padding):
        super().__init__()
        if out_channels != 8 * num_groups or (kernel_size, padding) != (3, 1):
            raise ValueError("this kernel is for groups of 8 channels and 3 taps with padding 1")
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, stride=1, padding=padding, bias=False)
        self.norm = nn.GroupNorm(num_groups, out_channels)

    def prepare(self):
        w = self.conv.weight.detach().double()
        g = torch.tensor(
            [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], dtype=torch.float64
        )
        u = torch.einsum("pk,oik->opi", g / 24, w)
        oc, products, ic = u.shape
        self.packed = u.reshape(oc // 8, 8, products, ic).permute(0, 2, 3, 1).float().contiguous()

    def forward(self, x):
        return extension.conv_groupnorm(x, self.packed, self.norm.weight, self.norm.bias, self.norm.eps)
