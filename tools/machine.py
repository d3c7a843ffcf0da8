"""What the machine is and how fast it can be at most: peaks from the device's own properties."""

import ctypes
import os
import platform
import re
import time
from functools import lru_cache
from pathlib import Path

import torch

from tasks.spec import Precision, Target
from tools.briefing import Machine
from tools.toolchain import nvcc_version

# Dense floating-point operations (multiply and add count as two) of one multiprocessor in one clock, by compute
# capability: NVIDIA's architecture white papers (A100: 2020, Ada: 2022, H100: 2022), checked against the peak rates
# they print, for example H100 SXM TF32: 132 x 2048 x 1.83 GHz = 495 TFLOP/s.
_OPERATIONS_PER_CLOCK = {
    "8.0": {"fp32": 128, "tf32": 1024, "half": 2048},
    "8.6": {"fp32": 256, "tf32": 256, "half": 512},
    "8.9": {"fp32": 256, "tf32": 512, "half": 1024},
    "9.0": {"fp32": 256, "tf32": 2048, "half": 4096},
}
_CLOCK_RATE, _MEMORY_CLOCK_RATE, _MEMORY_BUS_WIDTH = 13, 36, 37
"""CUdevice_attribute numbers of the CUDA driver interface; the rates are in kHz, the width in bits."""
_FP32_BY_3XTF32 = 3
"""Three TF32 products make one of fp32 accuracy (3xTF32, CUTLASS example 28), the fastest route to fp32 on tensor
cores; so the fp32 peak is the larger of the plain one and a third of TF32's."""


def driver_attribute(attribute: int, device: int) -> int | None:
    """One property of a GPU from the CUDA driver; None where the driver does not say."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    value = ctypes.c_int()
    handle = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), device):
        return None
    if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle):
        return None
    return value.value


def _gpu_flops(capability: str, multiprocessors: int, clock_khz: int | None, precision: Precision) -> float | None:
    per_clock = _OPERATIONS_PER_CLOCK.get(capability)
    if per_clock is None or clock_khz is None:
        return None
    rate = {
        Precision.FP32: max(per_clock["fp32"], per_clock["tf32"] / _FP32_BY_3XTF32),
        Precision.TF32: per_clock["tf32"],
        Precision.FP16: per_clock["half"],
        Precision.BF16: per_clock["half"],
    }[precision]
    return float(multiprocessors * rate * clock_khz * 1e3)


def _gpu(precision: Precision) -> Machine:
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    capability = f"{properties.major}.{properties.minor}"
    clock, memory_clock, width = (
        driver_attribute(number, index) for number in (_CLOCK_RATE, _MEMORY_CLOCK_RATE, _MEMORY_BUS_WIDTH)
    )
    # Two transfers a clock (double data rate), `width` bits each.
    bandwidth = None if memory_clock is None or width is None else 2.0 * memory_clock * 1e3 * width / 8
    return Machine(
        device=properties.name,
        cores=properties.multi_processor_count,
        capability=capability,
        cache_bytes=properties.L2_cache_size,
        peak_bytes_per_s=bandwidth,
        peak_flops_per_s=_gpu_flops(capability, properties.multi_processor_count, clock, precision),
        torch=torch.__version__,
        python=platform.python_version(),
        cuda=nvcc_version(),
        driver=_driver_version(),
    )


def _driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else ""


@lru_cache(maxsize=1)
def _host_bandwidth() -> float:
    """Bytes/s of reading a buffer that no cache holds, the best of several runs. Measured: a host does not state it."""
    buffer = torch.ones(_host_cache_bytes() * 2 // 4, dtype=torch.float32)
    best = float("inf")
    for _ in range(8):
        started = time.perf_counter()
        buffer.sum()
        best = min(best, time.perf_counter() - started)
    return buffer.numel() * 4 / best


def _host_flops(cores: int, vector: str) -> float | None:
    """A bound on fp32 flop/s: no core does more than two fused multiply-adds of its widest vectors in a clock.

    Not measured, because a peak measured on a busy machine would accuse honest kernels.
    """
    megahertz = _maximum_megahertz()
    lanes = {"avx512f": 16, "avx2": 8, "avx": 8}.get(vector)
    return None if megahertz is None or lanes is None else cores * megahertz * 1e6 * lanes * 2 * 2


def _maximum_megahertz() -> float | None:
    """The highest clock the kernel knows of; inside a virtual machine the nominal one, which boosts may exceed."""
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    if path.is_file():
        return float(path.read_text()) / 1e3
    nominal = _cpu_info("cpu MHz")
    return float(nominal) if nominal else None


def _host_cache_bytes() -> int:
    """The size of the last-level cache of the first core; 32 MiB where the kernel does not tell."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        if found := re.match(r"(\d+)([KM]?)", path.read_text().strip()):
            sizes.append(int(found[1]) * {"K": 1 << 10, "M": 1 << 20, "": 1}[found[2]])
    return max(sizes, default=32 << 20)


def _cpu_info(field: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    found = re.search(rf"^{field}\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _host() -> Machine:
    cores = len(os.sched_getaffinity(0))
    features = set(_cpu_info("flags").split())
    vector = next((name for name in ("avx512f", "avx2", "avx") if name in features), "")
    return Machine(
        device=_cpu_info("model name") or platform.machine(),
        cores=cores,
        capability=vector,
        cache_bytes=_host_cache_bytes(),
        peak_bytes_per_s=_host_bandwidth(),
        peak_flops_per_s=_host_flops(cores, vector),
        torch=torch.__version__,
        python=platform.python_version(),
        cuda=nvcc_version(),
    )


def cache_bytes(target: Target) -> int:
    """The size of a target's last-level cache, without measuring anything."""
    if target is Target.CPU:
        return _host_cache_bytes()
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


def machine(target: Target, precision: Precision) -> Machine:
    """The machine as seen from a target; peaks follow from its properties, but a host's bandwidth is measured."""
    return _gpu(precision) if target is Target.CUDA else _host()
