"""Where the time goes: what a worker tells of its launches becomes times, shares and limits, and a text."""

import time
from collections.abc import Iterator

import pytest
from judging import CONVOLUTION, LONG_INPUTS, candidate_of, message_of, task_of
from pydantic import ValidationError

from tasks.errors import ProtocolError
from tasks.spec import Target
from tools import profiling
from tools.counters import MeasuredCounters
from tools.describe import describe
from tools.judge import Judge
from tools.kernel_resources import KernelResources
from tools.occupancy import DeviceLimits
from tools.profile_results import Counters, HostThreads, KernelProfile, Profiled
from tools.profiling import kernel_profiles
from tools.replies import DoneLine, Traced, parse_reply
from tools.results import Extension
from tools.server_process import Processes
from tools.verdict import Verdict

H200 = DeviceLimits(132, 2048, 65536, 228 << 10, 32, 1024)
ID = "0123456789abcdef" * 4
MAIN = "void conv_kernel<3>(float const*, float*)"
COPY = "Memcpy DtoD (Device -> Device)"


def launch(name: str, start: int, ns: int, grid: int = 132, registers: int = 128) -> Traced:
    if name == COPY:
        return Traced(name=name, start_ns=start, ns=ns)
    form = {"grid": (grid, 1, 1), "block": (256, 1, 1), "registers": registers, "shared_bytes": 4096}
    return Traced.model_validate({"name": name, "start_ns": start, "ns": ns, **form})


def extension(*kernels: KernelResources) -> Extension:
    return Extension(label="conv", key="k", cached=False, seconds=1.0, path_taken="light", kernels=kernels)


def test_launches_become_times_shares_and_limits() -> None:
    calls = [
        [launch(COPY, 0, 20), launch(MAIN, 20, 50), launch(MAIN, 70, 30, grid=10)],
        [launch(COPY, 0, 40), launch(MAIN, 40, 100), launch(MAIN, 140, 20, grid=10)],
        [launch(COPY, 0, 30), launch(MAIN, 30, 60), launch(MAIN, 90, 10, grid=10)],
    ]
    resources = KernelResources(name=MAIN, registers=128, spill_store_bytes=8)
    counted = MeasuredCounters(kernels={"conv_kernel": Counters(l2_hit_rate=0.5)})
    main, copy = kernel_profiles(calls, [extension(resources)], H200, counted)
    # Calls take 100, 160 and 100 ns in all; the kernel 80, 120 and 70 of them, the copy 20, 40 and 30.
    assert (main.name, main.launches, main.ns, main.share) == (MAIN, 2.0, 80.0, 0.8)
    assert (copy.name, copy.launches, copy.ns, copy.share) == (COPY, 1.0, 30.0, 0.3)
    assert main.grid == (132, 1, 1), "of the longest launch"
    assert main.resources == resources
    assert main.counters == Counters(l2_hit_rate=0.5)
    assert main.occupancy is not None
    # 128 registers: 16 warps, two blocks of eight; so 132 blocks are half a wave.
    assert (main.occupancy.blocks_per_sm, main.occupancy.waves) == (2, 0.5)
    assert main.occupancy.limited_by == ("registers",)
    assert (copy.occupancy, copy.resources, copy.grid) == (None, None, None)


def test_of_several_instances_of_a_template_only_the_same_is_named() -> None:
    built = [KernelResources(name=f"void conv_kernel<{n}>(float const*, float*)", registers=n) for n in (3, 5)]
    plain = MeasuredCounters()
    (main,) = kernel_profiles([[launch(MAIN, 0, 5)]], [extension(*built)], None, plain)
    assert main.resources == built[0]
    (other,) = kernel_profiles([[launch("void conv_kernel<7>(float*)", 0, 5)]], [extension(*built)], None, plain)
    assert other.resources is None
    assert other.occupancy is None, "the device's limits are not known"


@pytest.mark.parametrize(
    "change", [{"ns": -1}, {"grid": [0, 1, 1]}, {"grid": [1, 1]}, {"registers": -3}, {"name": "x" * 1001}]
)
def test_a_worker_cannot_tell_nonsense_of_its_launches(change: dict[str, object]) -> None:
    told = {"name": "k", "start_ns": 0, "ns": 1, "grid": [1, 1, 1], "block": [32, 1, 1], **change}
    with pytest.raises(ValidationError):
        Traced.model_validate(told)


def test_a_workers_line_of_launches_is_read() -> None:
    line = parse_reply({"done": {"traced": [{"name": "k\x1b[31m", "start_ns": 5, "ns": 7, "grid": None}]}})
    assert isinstance(line, DoneLine)
    (traced,) = line.done.traced
    assert (traced.start_ns, traced.ns, traced.grid) == (5, 7, None)
    assert "\x1b" not in traced.name


def profiled(**change: object) -> Profiled:
    given: dict[str, object] = {
        "candidate": ID,
        "shape": "N=2 L=4096",
        "calls": 5,
        "call_ns": 100_000.0,
        "busy_ns": 90_000.0,
        "byte_count": 48_000_000,
        "flop_count": 2_000_000_000,
        "peak_bytes_per_s": 4.8e12,
        "peak_flops_per_s": 5e14,
        "floor_ns": 10_000.0,
        "counters_missing": "Nsight Compute (ncu) is not installed.",
    }
    return Profiled.model_validate({**given, **change})


def test_a_profile_says_what_bounds_and_what_is_missing() -> None:
    occupancy = {"blocks_per_sm": 2, "warps_per_sm": 16, "share": 0.25, "limited_by": ("registers",), "waves": 0.5}
    kernel = KernelProfile.model_validate(
        {
            "name": MAIN,
            "launches": 2,
            "ns": 80_000.0,
            "share": 0.89,
            "grid": (132, 1, 1),
            "block": (256, 1, 1),
            "registers": 128,
            "shared_bytes": 4096,
            "occupancy": occupancy,
            "resources": {"name": MAIN, "registers": 128, "spill_store_bytes": 8, "spill_load_bytes": 16},
            "counters": {"l2_hit_rate": 0.5, "dram_read_bytes": 1e6, "dram_write_bytes": 2e6, "stalls": {"wait": 1.25}},
        }
    )
    text = describe(profiled(kernels=(kernel,)))
    # 48 MB in 100 us are 480 GB/s, a tenth of 4.8 TB/s; 2 GFLOP in it 20 TFLOP/s, 4 % of 500.
    for said in (
        "100 us a call on N=2 L=4096 (median of 5 calls; caches emptied before each)",
        "only `benchmark` counts",
        "at least 48 MB, so 480 GB/s (10.0% of the peak 4.8 TB/s)",
        "about 2 GFLOP, so 20 TFLOP/s (4.0% of the peak 500 TFLOP/s)",
        "floor 10 us, set by memory: 10% of it reached",
        "the GPU idles 10 us of it (10%), between launches",
        f"89.0%  80 us in 2 launches a call  {MAIN}",
        "grid 132x1x1, block 256x1x1, 128 registers, 4096 bytes shared, spills 8 bytes stored and 16 loaded",
        "occupancy at most 25% (2 blocks, 16 warps a multiprocessor), limited by registers; 0.50 waves: the grid does",
        "Nsight Compute: L2 hits 50%; DRAM 1 MB read, 2 MB written; warps that wait while one issues: wait 1.2",
        "no hardware counters (stalls, hit rates, bytes moved): Nsight Compute (ncu) is not installed.",
    ):
        assert said in text, text


def test_many_kernels_are_counted_not_listed() -> None:
    kernels = tuple(KernelProfile(name=f"k{n}", launches=1, ns=100.0, share=0.05) for n in range(20))
    text = describe(profiled(kernels=kernels))
    assert "k7" in text and "k8" not in text
    assert "and 12 more kernels: 1.2 us" in text


def test_a_call_in_which_no_kernel_was_seen_is_no_time() -> None:
    assert "no kernel was seen to run in any call" in describe(profiled(call_ns=None, busy_ns=None, calls=0))


def test_peaks_that_are_not_known_are_said() -> None:
    text = describe(profiled(peak_flops_per_s=None, floor_ns=None, threads=HostThreads(busy_threads=1, busy_cores=0.9)))
    assert "(peak unknown)" in text
    assert "floor" not in text
    assert "1 threads compute, 0.90 cores busy on average" in text
    assert "caches emptied" not in text


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    task = task_of(tmp_path_factory.mktemp("profiling"), CONVOLUTION, LONG_INPUTS)
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        yield judge


def test_on_the_host_time_threads_and_work_are_told(judge: Judge) -> None:
    # Python's own loop, which nobody shares among threads.
    slow = "torch.set_num_threads(1)\nfor i in range(300000):\n    i * 0.5\nreturn self.conv(x)"
    result = judge.profile(candidate_of(CONVOLUTION, ("return self.conv(x)", slow)))
    assert isinstance(result, Profiled), message_of(result)
    assert result.call_ns is not None and result.call_ns > 1_000_000, "300,000 steps of Python take some milliseconds"
    assert result.threads is not None and result.threads.busy_threads == 1
    assert (result.kernels, result.counters_missing) == ((), "")
    # 4 samples of 4 channels and 4,096 steps in and out, 4 x 4 x 3 weights and 4 biases, 4 bytes each.
    assert result.byte_count == 4 * (2 * 4 * 4 * 4096 + 4 * 4 * 3 + 4)
    # Two operations for each of 3 taps and 4 input channels of every output.
    assert result.flop_count == 2 * 3 * 4 * (4 * 4 * 4096)
    assert Profiled.model_validate_json(result.model_dump_json()) == result


def test_a_candidate_that_fails_in_a_call_cannot_be_profiled(judge: Judge) -> None:
    result = judge.profile(candidate_of(CONVOLUTION, ("return self.conv(x)", "raise KeyError('x')")))
    assert result.status == "fault"
    assert (result.verdict, result.stage) == (Verdict.CRASHED, "profile")


def test_a_worker_that_tells_of_calls_without_a_duration_is_described() -> None:
    call = profiling._Call((Traced(name="k", start_ns=7, ns=0),))
    assert call.span_ns == 1, "rates are something over it"


@pytest.mark.parametrize(
    "lie",
    [
        {"start_ns": 10**400},
        {"start_ns": -(1 << 63)},
        {"grid": [1 << 31, 1, 1]},
        {"block": [1, 1, 10**400]},
        {"registers": 10**400},
        {"shared_bytes": 1 << 31},
    ],
)
def test_numbers_that_no_launch_has_break_the_protocol(lie: dict[str, object]) -> None:
    launched = {"name": "k", "start_ns": 0, "ns": 1, "grid": [1, 1, 1], "block": [1, 1, 1]}
    assert isinstance(parse_reply({"done": {"traced": [launched]}}), DoneLine)
    with pytest.raises(ProtocolError):
        parse_reply({"done": {"traced": [{**launched, **lie}]}})


def test_a_worker_that_tells_of_very_many_kernels_keeps_nobody_busy() -> None:
    calls = [[Traced(name=f"k{at}", start_ns=at, ns=1 + at) for at in range(20_000)] for _ in range(5)]
    began = time.process_time()
    found = kernel_profiles(calls, [], None, MeasuredCounters())
    assert [kernel.name for kernel in found[:2]] == ["k19999", "k19998"]
    assert len(found) == profiling.MOST_KERNELS
    assert time.process_time() - began < 20, "each name looked for among all launches took minutes"
