"""Peaks: what a machine can do at most."""

import os
import platform

import pytest
import torch

from tasks.spec import Precision, Target
from tools import machine as machine_module
from tools.machine import _gpu_flops, _host_flops, machine

TERA = 1e12


@pytest.mark.parametrize(
    ("capability", "multiprocessors", "clock_khz", "precision", "printed"),
    [
        # The peaks that NVIDIA's data sheets print, dense: A100 SXM, H100 SXM, L40 (fp32), RTX A6000 (fp32).
        ("8.0", 108, 1_410_000, Precision.TF32, 156 * TERA),
        ("8.0", 108, 1_410_000, Precision.FP16, 312 * TERA),
        ("8.0", 108, 1_410_000, Precision.BF16, 312 * TERA),
        ("9.0", 132, 1_830_000, Precision.TF32, 494.7 * TERA),
        ("9.0", 132, 1_830_000, Precision.BF16, 989.4 * TERA),
        ("8.9", 142, 2_490_000, Precision.FP32, 90.5 * TERA),
        ("8.6", 84, 1_800_000, Precision.FP32, 38.7 * TERA),
    ],
)
def test_peaks_are_those_of_the_data_sheets(
    capability: str, multiprocessors: int, clock_khz: int, precision: Precision, printed: float
) -> None:
    assert _gpu_flops(capability, multiprocessors, clock_khz, precision) == pytest.approx(printed, rel=0.01)


def test_fp32_may_be_three_tf32_products() -> None:
    """On Hopper a third of the TF32 peak is more than the plain units give, 67 TFLOP/s."""
    assert _gpu_flops("9.0", 132, 1_830_000, Precision.FP32) == pytest.approx(494.7 * TERA / 3, rel=0.01)


def test_a_gpu_that_is_not_listed_has_no_known_peak() -> None:
    assert _gpu_flops("7.5", 40, 1_500_000, Precision.FP32) is None
    assert _gpu_flops("9.0", 132, None, Precision.FP32) is None


@pytest.mark.parametrize(("vector", "lanes"), [("avx512f", 16), ("avx2", 8)])
def test_a_hosts_bound_is_two_fused_multiply_adds_a_clock(
    vector: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "_maximum_megahertz", lambda: 2500.0)
    assert _host_flops(4, vector) == 4 * 2.5e9 * lanes * 4


def test_an_unknown_host_has_no_known_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _host_flops(4, "") is None
    monkeypatch.setattr(machine_module, "_maximum_megahertz", lambda: None)
    assert _host_flops(4, "avx2") is None


def test_this_host() -> None:
    here = machine(Target.CPU, Precision.FP32)
    assert here.cores == len(os.sched_getaffinity(0))
    assert (here.torch, here.python) == (torch.__version__, platform.python_version())
    assert here.device
    assert 1 << 20 <= here.cache_bytes <= 1 << 31
    # No memory of today is slower than 100 MB/s or faster than 10 TB/s.
    assert here.peak_bytes_per_s is not None
    assert 1e8 < here.peak_bytes_per_s < 1e13
