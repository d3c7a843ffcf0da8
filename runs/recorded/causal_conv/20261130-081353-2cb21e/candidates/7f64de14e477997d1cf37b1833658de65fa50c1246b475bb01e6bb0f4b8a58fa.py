from fractions import Fraction

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>
#include <immintrin.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>

constexpr int K = 4, M = 6, P = M + K - 1;  // taps, outputs and products of a Winograd tile
constexpr int OCB = 8, NV = 3, TB = 16 * NV;  // register tile: output channels, vectors, Winograd tiles
constexpr int ICB = 32;  // input channels that are summed before their sum is added to the others'

// m[8][48] = w^T x, over the channels; w is [channels][8], x is [channels][48].
// Blocks of channels are summed on their own, then to each other: that keeps the rounding of long sums small.
template <int V>
void products(const float* x, const float* w, int64_t channels, float* m) {
    for (int64_t begin = 0; begin < channels; begin += ICB) {
        const int64_t count = std::min<int64_t>(ICB, channels - begin);
        __m512 acc[OCB][V] = {};
        for (int64_t c = 0; c < count; ++c, x += TB, w += OCB) {
            __m512 xv[V];
            for (int v = 0; v < V; ++v) xv[v] = _mm512_load_ps(x + 16 * v);
            for (int i = 0; i < OCB; ++i) {
                const __m512 b = _mm512_set1_ps(w[i]);
                for (int v = 0; v < V; ++v) acc[i][v] = _mm512_fmadd_ps(b, xv[v], acc[i][v]);
            }
        }
        for (int i = 0; i < OCB; ++i)
            for (int v = 0; v < V; ++v) {
                float* to = m + i * TB + 16 * v;
                _mm512_store_ps(to, begin == 0 ? acc[i][v] : _mm512_add_ps(_mm512_load_ps(to), acc[i][v]));
            }
    }
}

// One channel: row holds x[t0 - 3 ...]; writes panel[p][channel][48]
void transform_input(const float* row, const float* B, int64_t IC, int64_t c, float* panel) {
    alignas(64) float phase[M][TB + 16];
    for (int q = 0; q < TB + 2; ++q)
        for (int j = 0; j < M; ++j) phase[j][q] = row[M * q + j];
    for (int q = 0; q < TB; q += 16) {
        __m512 d[P];
        for (int j = 0; j < P; ++j) d[j] = _mm512_loadu_ps(phase[j % M] + q + j / M);
        for (int p = 0; p < P; ++p) {
            __m512 sum = _mm512_setzero_ps();
            for (int j = 0; j < P; ++j) sum = _mm512_fmadd_ps(_mm512_set1_ps(B[p * P + j]), d[j], sum);
            _mm512_store_ps(panel + (p * IC + c) * TB + q, sum);
        }
    }
}

// 16 Winograd tiles of one output channel: m is [P][8][48] at this channel and tile; writes width outputs
void transform_output(const float* m, const float* A, float* out, int64_t width) {
    __m512 y[M] = {};
    for (int p = 0; p < P; ++p) {
        const __m512 v = _mm512_load_ps(m + p * OCB * TB);
        for (int i = 0; i < M; ++i) y[i] = _mm512_fmadd_ps(_mm512_set1_ps(A[i * P + p]), v, y[i]);
    }
    alignas(64) float rows[M][16], flat[M * 16];
    for (int i = 0; i < M; ++i) _mm512_store_ps(rows[i], y[i]);
    for (int q = 0; q < 16; ++q)
        for (int i = 0; i < M; ++i) flat[M * q + i] = rows[i][q];
    if (width >= M * 16) std::memcpy(out, flat, sizeof flat);
    else std::memcpy(out, flat, width * sizeof(float));
}

// u is (OC / 8, P, IC, 8); x is (N, IC, L); out is (N, OC, L)
torch::Tensor causal_conv(torch::Tensor x, torch::Tensor u, torch::Tensor b, torch::Tensor a) {
    TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat32, "x must be contiguous float32");
    const int64_t N = x.size(0), IC = x.size(1), L = x.size(2), OC = u.size(0) * OCB;
    TORCH_CHECK(u.size(1) == P && u.size(2) == IC, "weights do not fit");
    torch::Tensor out = torch::empty({N, OC, L}, x.options());
    const float *X = x.data_ptr<float>(), *U = u.data_ptr<float>(), *B = b.data_ptr<float>(), *A = a.data_ptr<float>();
    float* O = out.data_ptr<float>();
    const int64_t slab = TB * M, slabs = (L + slab - 1) / slab;
#pragma omp parallel
    {
        float* panel = (float*)std::aligned_alloc(64, P * IC * TB * sizeof(float));
        alignas(64) float m[P][OCB][TB];
        float row[M * (TB + 2)];
#pragma omp for schedule(static)
        for (int64_t item = 0; item < N * slabs; ++item) {
            const int64_t n = item / slabs, t0 = item % slabs * slab, T = std::min<int64_t>(slab, L - t0);
            const int64_t zeros = std::max<int64_t>(K - 1 - t0, 0);
            std::fill(row, row + M * (TB + 2), 0.0f);
            for (int64_t c = 0; c < IC; ++c) {
                const float* xr = X + (n * IC + c) * L;
                std::copy(xr + t0 - (K - 1) + zeros, xr + t0 + T, row + zeros);
                transform_input(row, B, IC, c, panel);
            }
            const int64_t vectors = (T + 16 * M - 1) / (16 * M);
            for (int64_t ob = 0; ob < OC / OCB; ++ob) {
                for (int p = 0; p < P; ++p) {
                    const float* xp = panel + p * IC * TB;
                    const float* up = U + (ob * P + p) * IC * OCB;
                    if (vectors == 3) products<3>(xp, up, IC, m[p][0]);
                    if (vectors == 2) products<2>(xp, up, IC, m[p][0]);
                    if (vectors == 1) products<1>(xp, up, IC, m[p][0]);
                }
                for (int i = 0; i < OCB; ++i)
                    for (int64_t v = 0; v < vectors; ++v) {
                        const int64_t t = 16 * v * M;
                        transform_output(m[0][i] + 16 * v, A, O + (n * OC + ob * OCB + i) * L + t0 + t, T - t);
                    }
            }
        }
        std::free(panel);
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

HALF = Fraction(1, 2)
POINTS = [Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2), HALF, -HALF, Fraction(4)]


def toom_cook(points, outputs, taps):
    """The matrices G (products x taps), B (products x products), A (outputs x products); infinity is the last point."""
    size = len(points) + 1

    def polynomial(roots):
        coefficients = [Fraction(1)]
        for root in roots:
            up = [Fraction(0), *coefficients]
            coefficients = [u - root * c for u, c in zip(up, [*coefficients, Fraction(0)], strict=True)]
        return coefficients + [Fraction(0)] * (size - len(coefficients))

    g, b = [], []
    for p in points:
        others = [q for q in points if q != p]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        g.append([p**k / scale for k in range(taps)])
        b.append(polynomial(others))
    g.append([Fraction(int(k == taps - 1)) for k in range(taps)])
    b.append(polynomial(points))
    a = [[p**i for p in points] + [Fraction(int(i == outputs - 1))] for i in range(outputs)]
    return [torch.tensor([[float(v) for v in r] for r in rows], dtype=torch.float64) for rows in (g, b, a)]


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        if (kernel_size, dilation) != (4, 1):
            raise ValueError("this kernel is for 4 taps at dilation 1")
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation, bias=False)

    def prepare(self):
        g, b, a = toom_cook(POINTS, 6, 4)
        u = torch.einsum("pk,oik->opi", g, self.conv.weight.detach().double())
        oc, products, ic = u.shape
        self.u = u.reshape(oc // 8, 8, products, ic).permute(0, 2, 3, 1).float().contiguous()
        self.b, self.a = b.float().contiguous(), a.float().contiguous()

    def forward(self, x):
        return extension.causal_conv(x, self.u, self.b, self.a)
