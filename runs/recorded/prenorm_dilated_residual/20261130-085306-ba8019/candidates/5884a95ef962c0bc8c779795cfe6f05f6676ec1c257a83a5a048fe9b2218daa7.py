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

constexpr int OCB = 8, NV = 3, TB = 16 * NV;  // register tile: output channels, vectors, Winograd tiles
constexpr int M = 4, K = 3, P = M + K - 1;    // outputs, taps and products of a Winograd tile
constexpr int D = 128;                        // dilation: a tile takes every 128th sample
constexpr int PANELS = (D + TB - 1) / TB;     // of 48, 48 and 32 tiles
constexpr int ICB = 32;  // channels that are summed before their sum is added to the others': less rounding

struct Statistics {
    float *mean, *var;
    const float *gamma, *beta;
    double momentum, eps;
};

// What the activation of one channel is multiplied with: d[0..P) at distance D become the P operands; `to` is
// [block][panel][p][channel][48] at this channel
void transform_input(const float* active, int64_t blocks, int64_t C, const float* B, float* to) {
    for (int64_t b = 0; b < blocks; ++b)
        for (int64_t r = 0; r < D; r += 16) {
            vec d[P];
            for (int j = 0; j < P; ++j) d[j] = *(const loose*)(active + (b * M + j) * D + r);
            float* at = to + (b * PANELS + r / TB) * P * C * TB + r % TB;
            for (int p = 0; p < P; ++p) {
                vec sum = B[p * P] * d[0];
                for (int j = 1; j < P; ++j) sum += B[p * P + j] * d[j];
                *(loose*)(at + p * C * TB) = sum;
            }
        }
}

// Batch statistics of channel c, ReLU of the normalised values into `active`, which is zero elsewhere, and from there
// the operands; moves the running statistics
void normalise(const float* x, int64_t N, int64_t C, int64_t L, int64_t c, const Statistics& s, float* active,
               int64_t blocks, const float* B, float* operands) {
    const float origin = x[c * L];  // sums of differences to it keep their digits where the mean is large
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < N; ++n) {
        const float* row = x + (n * C + c) * L;
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t t = 0; t < L; ++t) part += row[t] - origin;
        sum += part;
    }
    const double count = N * L, mean = sum / count;  // less the origin
    const float shift = mean;
    for (int64_t n = 0; n < N; ++n) {
        const float* row = x + (n * C + c) * L;
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t t = 0; t < L; ++t) part += (row[t] - origin - shift) * (row[t] - origin - shift);
        squares += part;
    }
    const float scale = s.gamma[c] / std::sqrt(squares / count + s.eps), beta = s.beta[c];
    for (int64_t n = 0; n < N; ++n) {
        const float* row = x + (n * C + c) * L;
#pragma omp simd
        for (int64_t t = 0; t < L; ++t) active[D + t] = std::max(0.0f, (row[t] - origin - shift) * scale + beta);
        transform_input(active, blocks, C, B, operands + (n * blocks * PANELS * P * C + c) * TB);
    }
    s.mean[c] = (1 - s.momentum) * s.mean[c] + s.momentum * (mean + origin);
    s.var[c] = (1 - s.momentum) * s.var[c] + s.momentum * squares / (count - 1);
}

// m[8][48] = sum over channels of w[channel][8] * a[channel][48]
template <int V>
void products(const float* a, const float* w, int64_t channels, float* m) {
    for (int64_t begin = 0; begin < channels; begin += ICB) {
        vec acc[OCB][V] = {};
        for (int64_t c = begin; c < std::min(begin + ICB, channels); ++c, a += TB, w += OCB) {
            vec v[V];
            for (int j = 0; j < V; ++j) v[j] = *(const loose*)(a + 16 * j);
            for (int i = 0; i < OCB; ++i)
                for (int j = 0; j < V; ++j) acc[i][j] += w[i] * v[j];
        }
        for (int i = 0; i < OCB; ++i)
            for (int j = 0; j < V; ++j) {
                loose* to = (loose*)(m + i * TB + 16 * j);
                *to = begin == 0 ? acc[i][j] : *to + acc[i][j];
            }
    }
}

// 16 tiles of one channel: their M outputs, D apart, plus bias and x; `left` is how many times there are from here on
inline void transform_output(const float* m, const float* A, float bias, const float* x, float* out, int64_t left) {
    vec y[M];
    for (int i = 0; i < M; ++i) y[i] = vec{} + bias;
    for (int p = 0; p < P; ++p) {
        const vec q = *(const loose*)(m + p * OCB * TB);
        for (int i = 0; i < M; ++i) y[i] += A[i * P + p] * q;
    }
    for (int i = 0; i < M; ++i) {
        if (left - i * D >= 16)
            *(loose*)(out + i * D) = y[i] + *(const loose*)(x + i * D);
        else
            for (int64_t t = 0; t < left - i * D; ++t) out[i * D + t] = y[i][t] + x[i * D + t];
    }
}

// w is (C / 8, P, C, 8); b and a are the matrices of the transforms
torch::Tensor prenorm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor mean, torch::Tensor var,
                      torch::Tensor batches, torch::Tensor w, torch::Tensor bias, torch::Tensor b, torch::Tensor a,
                      double momentum, double eps) {
    TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat32, "x must be contiguous float32");
    const int64_t N = x.size(0), C = x.size(1), L = x.size(2), groups = C / OCB, blocks = (L + M * D - 1) / (M * D);
    TORCH_CHECK(N * L > 1, "batch statistics need more than one value per channel");
    torch::Tensor out = torch::empty_like(x), operands = torch::empty({N * blocks * PANELS * P * C * TB}, x.options());
    const float *X = x.data_ptr<float>(), *W = w.data_ptr<float>(), *bs = bias.data_ptr<float>();
    const float *A = a.data_ptr<float>(), *B = b.data_ptr<float>();
    float *O = out.data_ptr<float>(), *V = operands.data_ptr<float>();
    const Statistics s{mean.data_ptr<float>(), var.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(),
                       momentum, eps};
    *batches.data_ptr<int64_t>() += 1;
#pragma omp parallel
    {
        std::vector<float> active((blocks * M + 2) * D), m(P * OCB * TB);
#pragma omp for schedule(static)
        for (int64_t c = 0; c < C; ++c) normalise(X, N, C, L, c, s, active.data(), blocks, B, V);
#pragma omp for schedule(static)
        for (int64_t item = 0; item < N * blocks * PANELS * groups; ++item) {
            const int64_t g = item % groups, panel = item / groups % PANELS, n = item / groups / PANELS / blocks;
            const int64_t t0 = item / groups / PANELS % blocks * M * D + panel * TB;
            const int64_t vectors = std::min<int64_t>(NV, (D - panel * TB) / 16);
            for (int p = 0; p < P; ++p) {
                const float *v = V + (item / groups * P + p) * C * TB, *wp = W + (g * P + p) * C * OCB;
                if (vectors == 3) products<3>(v, wp, C, m.data() + p * OCB * TB);
                else products<2>(v, wp, C, m.data() + p * OCB * TB);
            }
            for (int i = 0; i < OCB; ++i)
                for (int64_t v = 0; v < vectors; ++v) {
                    const int64_t t = t0 + 16 * v, at = (n * C + g * OCB + i) * L + t;
                    transform_output(m.data() + i * TB + 16 * v, A, bs[g * OCB + i], X + at, O + at, L - t);
                }
        }
    }
    return out;
}
"""

extension = load_inline(
    name="prenorm",
    cpp_sources=CPP,
    functions=["prenorm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


POINTS = [0.0, 1.0, -1.0, 2.0, -2.0]


def toom_cook(points, outputs, taps):
    """The matrices G (products x taps), B (products x products), A (outputs x products); infinity is the last point."""
    size = len(points) + 1

    def polynomial(roots):
        coefficients = torch.ones(1, dtype=torch.float64)
        zero = torch.zeros(1, dtype=torch.float64)
        for root in roots:
            coefficients = torch.cat([zero, coefficients]) - root * torch.cat([coefficients, zero])
        return torch.cat([coefficients, zero.expand(size - len(coefficients))])

    finite = torch.tensor(points, dtype=torch.float64)
    scale = torch.stack([torch.prod(p - finite[finite != p]) for p in finite])
    infinity = torch.zeros(1, size, dtype=torch.float64)
    infinity[0, -1] = 1
    g = torch.cat([finite[:, None] ** torch.arange(taps) / scale[:, None], infinity[:, -taps:]])
    b = torch.stack([*(polynomial([q for q in points if q != p]) for p in points), polynomial(points)])
    a = torch.cat([finite[:, None] ** torch.arange(outputs), infinity[:, -outputs:]]).T
    return g, b, a


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size, dilation):
        super().__init__()
        if (kernel_size, dilation) != (3, 128):
            raise ValueError("this kernel is for 3 taps at dilation 128")
        self.bn = nn.BatchNorm1d(channels)
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding=dilation, dilation=dilation)

    def prepare(self):
        g, b, a = toom_cook(POINTS, len(POINTS) - 1, 3)
        u = torch.einsum("pk,oik->opi", g, self.conv.weight.detach().double())
        oc, products, ic = u.shape
        self.packed = u.reshape(oc // 8, 8, products, ic).permute(0, 2, 3, 1).float().contiguous()
        self.b, self.a = b.float().contiguous(), a.float().contiguous()

    def forward(self, x):
        bn = self.bn
        return extension.prenorm(
            x, bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.num_batches_tracked,
            self.packed, self.conv.bias, self.b, self.a, bn.momentum, bn.eps,
        )
