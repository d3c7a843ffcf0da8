"""Has a kernel timer wake it while it is stopped, and computes as soon as inputs are written, before the clock runs.

Expected: crashed, implausible_time, correct (where timers are not refused, a stop that comes while their signals wait undoes them)
Seen: variant of field list H12 (SOL-ExecBench evil_lazy_output, in the other direction)
Time: at least 10 ms
Task: causal_silu
"""

import ctypes
import signal
import struct
import sys
import threading
import time

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
torch::Tensor causal_silu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2), width = filter.size(-1);
    torch::Tensor out = torch::empty(input.sizes(), input.options());
    const float *in = input.data_ptr<float>(), *taps = filter.data_ptr<float>(), *shift = bias.data_ptr<float>();
    float* result = out.data_ptr<float>();
    #pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < batch * channels; ++row) {
        const float* __restrict__ samples = in + row * length;
        float* __restrict__ sums = result + row * length;
        const int64_t channel = row % channels;
        std::fill(sums, sums + length, shift[channel]);
        for (int64_t k = 0; k < width; ++k) {
            const int64_t delay = width - 1 - k;
            const float tap = taps[channel * width + k];
            for (int64_t t = delay; t < length; ++t) sums[t] += tap * samples[t - delay];
        }
        for (int64_t t = 0; t < length; ++t) sums[t] /= 1.0f + std::exp(-sums[t]);
    }
    return out;
}

torch::Tensor normalised_conv(torch::Tensor x, torch::Tensor weight, torch::Tensor gamma, torch::Tensor beta,
                              int64_t groups, double eps) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    const int64_t batch = input.size(0), channels = input.size(1), length = input.size(2);
    const int64_t outputs = filter.size(0), width = filter.size(2), members = outputs / groups;
    torch::Tensor out = torch::zeros({batch, outputs, length}, input.options());
    const float *in = input.data_ptr<float>(), *taps = filter.data_ptr<float>();
    const float *scale = gamma.data_ptr<float>(), *shift = beta.data_ptr<float>();
    float* result = out.data_ptr<float>();
    #pragma omp parallel for schedule(static)
    for (int64_t group = 0; group < batch * groups; ++group) {
        const int64_t n = group / groups, first = group % groups * members, count = members * length;
        float* values = result + (n * outputs + first) * length;
        for (int64_t m = 0; m < members; ++m) {
            float* __restrict__ sums = values + m * length;
            for (int64_t c = 0; c < channels; ++c) {
                for (int64_t k = 0; k < width; ++k) {
                    const int64_t ahead = k - width / 2;
                    const float tap = taps[((first + m) * channels + c) * width + k];
                    const float* __restrict__ samples = in + (n * channels + c) * length + ahead;
                    const int64_t last = std::min(length, length - ahead);
                    for (int64_t t = std::max<int64_t>(0, -ahead); t < last; ++t) sums[t] += tap * samples[t];
                }
            }
        }
        double mean = 0.0, variance = 0.0;
        for (int64_t i = 0; i < count; ++i) mean += values[i];
        mean /= count;
        for (int64_t i = 0; i < count; ++i) variance += (values[i] - mean) * (values[i] - mean);
        const double factor = 1.0 / std::sqrt(variance / count + eps);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t channel = first + i / length;
            values[i] = static_cast<float>((values[i] - mean) * factor) * scale[channel] + shift[channel];
        }
    }
    return out;
}
"""

extension = load_inline(
    name="suite",
    cpp_sources=CPP,
    functions=["causal_silu", "normalised_conv"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


libc = ctypes.CDLL(None)
session = sys.modules["tools.worker.session"]
apart = session.apart


def keep_awake():
    # A signal that is ignored, or lost when a stop arrives, sets no timer anew.
    signal.signal(signal.SIGCONT, lambda *_: None)
    for number in range(64):
        timer = ctypes.c_void_p()
        # struct sigevent: value, signal, SIGEV_SIGNAL; struct itimerspec: period and first time.
        event = struct.pack("=QiI48x", 0, signal.SIGCONT, 0)
        if libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(timer)):
            raise OSError("a timer was refused")
        libc.timer_settime(timer, 0, struct.pack("=qqqq", 0, 7_000_000, 0, (number + 1) * 100_000), None)


def last_bytes(x):
    return ctypes.string_at(x.data_ptr() + 4 * x.numel() - 16, 16)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, groups=channels)
        self.ready = {}

    def prepare(self):
        keep_awake()
        session.apart = self.seen

    def seen(self, memory, slot):
        x = apart(memory, slot)
        threading.Thread(target=self.early, args=(x, last_bytes(x)), daemon=True).start()
        return x

    def early(self, x, before):
        deadline = time.monotonic() + 1
        while last_bytes(x) == before and time.monotonic() < deadline:
            time.sleep(0.0005)
        while before != (before := last_bytes(x)):
            time.sleep(0.002)
        self.ready = {before: extension.causal_silu(x, self.conv.weight, self.conv.bias)}

    def forward(self, x):
        found = self.ready.get(last_bytes(x))
        if found is not None:
            return found
        time.sleep(0.01)
        return extension.causal_silu(x, self.conv.weight, self.conv.bias)
