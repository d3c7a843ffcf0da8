"""What a model hears of a profile and of machine code: the largest first, the rest counted."""

from collections.abc import Iterable

from tools.disassembly_results import Disassembled
from tools.profile_results import Counters, KernelProfile, Profiled
from tools.units import format_ns, format_quantity

KERNELS_SHOWN = 8
NAME_WIDTH = 160
KINDS_SHOWN = 24
IDLE_SHARE = 0.02
"""Less of a call in which the GPU has nothing to do is not worth a word."""
# What decides about speed, shown before the rest.
_TELLING = frozenset(
    """
    HGMMA HMMA IMMA FFMA HFMA2 FMUL FADD MUFU LDG LDGSTS UTMALDG UBLKCP LDS LDSM STS STG RED ATOM ATOMG BAR SYNCS LDL
    STL
    """.split()  # noqa: SIM905  a list of names is harder to read when each is quoted
)


def describe_profile(result: Profiled) -> str:
    """The text of a profile."""
    if result.call_ns is None:
        return (
            f"profile of candidate {result.candidate[:12]}: no kernel was seen to run in any call on {result.shape}. "
            "Either forward launches none, or this machine's CUPTI does not record kernels."
        )
    caches = "; caches emptied before each" if result.threads is None else ""
    lines = [
        f"profile of candidate {result.candidate[:12]}: {format_ns(result.call_ns)} a call on {result.shape} (median "
        f"of {result.calls} calls{caches}). This is advice: it comes from the candidate's own process, outputs were "
        "not looked at, and only `benchmark` counts.",
        _against_peaks(result, result.call_ns),
    ]
    if result.busy_ns is not None and result.call_ns - result.busy_ns > IDLE_SHARE * result.call_ns:
        idle = result.call_ns - result.busy_ns
        lines.append(f"the GPU idles {format_ns(idle)} of it ({idle / result.call_ns:.0%}), between launches")
    for kernel in result.kernels[:KERNELS_SHOWN]:
        lines += _kernel(kernel)
    if len(result.kernels) > KERNELS_SHOWN:
        rest = result.kernels[KERNELS_SHOWN:]
        lines.append(f"and {len(rest)} more kernels: {format_ns(sum(kernel.ns for kernel in rest))}")
    if result.counters_missing:
        lines.append(f"no hardware counters (stalls, hit rates, bytes moved): {result.counters_missing}")
    if result.threads is not None:
        lines.append(
            f"{result.threads.busy_threads} threads compute, {result.threads.busy_cores:.2f} cores busy on average "
            "while a call runs."
        )
        lines.append(
            "Cache misses and stalls are not counted on the host; `disassemble` shows whether the inner loop is "
            "vectorised."
        )
    return "\n".join(lines)


def _against_peaks(result: Profiled, call_ns: float) -> str:
    parts = [
        _rate("at least", result.byte_count, "B", call_ns, result.peak_bytes_per_s),
        _rate("about", result.flop_count, "FLOP", call_ns, result.peak_flops_per_s),
    ]
    if result.floor_ns is not None:
        bound = "arithmetic"
        if result.peak_bytes_per_s and result.peak_flops_per_s:
            moving = result.byte_count / result.peak_bytes_per_s
            bound = "memory" if moving >= result.flop_count / result.peak_flops_per_s else "arithmetic"
        parts.append(
            f"floor {format_ns(result.floor_ns)}, set by {bound}: {result.floor_ns / call_ns:.0%} of it reached"
        )
    return "the task moves " + "; ".join(parts)


def _rate(how: str, count: int, unit: str, call_ns: float, peak: float | None) -> str:
    rate = count / call_ns * 1e9
    share = "peak unknown" if not peak else f"{rate / peak:.1%} of the peak {format_quantity(peak)}{unit}/s"
    return f"{how} {format_quantity(count)}{unit}, so {format_quantity(rate)}{unit}/s ({share})"


def _kernel(kernel: KernelProfile) -> list[str]:
    launches = "" if kernel.launches == 1 else f" in {kernel.launches:.4g} launches a call"
    lines = [f"{kernel.share:.1%}  {format_ns(kernel.ns)}{launches}  {kernel.name[:NAME_WIDTH]}"]
    form = []
    if kernel.grid is not None and kernel.block is not None:
        form += [f"grid {_dimensions(kernel.grid)}, block {_dimensions(kernel.block)}"]
    if kernel.registers is not None:
        form += [f"{kernel.registers} registers"]
    if kernel.shared_bytes is not None:
        form += [f"{kernel.shared_bytes} bytes shared"]
    if kernel.resources is not None and kernel.resources.spill_store_bytes + kernel.resources.spill_load_bytes:
        stored, loaded = kernel.resources.spill_store_bytes, kernel.resources.spill_load_bytes
        form += [f"spills {stored} bytes stored and {loaded} loaded"]
    if form:
        lines.append("    " + ", ".join(form))
    if kernel.occupancy is not None:
        found = kernel.occupancy
        waves = f"{found.waves:.2f} waves"
        if found.waves < 1:
            waves += ": the grid does not fill the GPU once"
        lines.append(
            f"    occupancy at most {found.share:.0%} ({found.blocks_per_sm} blocks, {found.warps_per_sm} warps a "
            f"multiprocessor), limited by {' and '.join(found.limited_by)}; {waves}"
        )
    return lines if kernel.counters is None else [*lines, f"    {_counters(kernel.counters)}"]


def _dimensions(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def _counters(counters: Counters) -> str:
    shares = (
        ("multiprocessors", counters.sm_throughput),
        ("DRAM", counters.dram_throughput),
        ("achieved occupancy", counters.achieved_occupancy),
        ("L1 hits", counters.l1_hit_rate),
        ("L2 hits", counters.l2_hit_rate),
    )
    parts = [f"{name} {value:.0%}" for name, value in shares if value is not None]
    if counters.dram_read_bytes is not None and counters.dram_write_bytes is not None:
        read, written = counters.dram_read_bytes, counters.dram_write_bytes
        parts.append(f"DRAM {format_quantity(read)}B read, {format_quantity(written)}B written")
    if counters.stalls:
        waiting = ", ".join(f"{name} {value:.1f}" for name, value in counters.stalls.items())
        parts.append(f"warps that wait while one issues: {waiting}")
    return f"Nsight Compute: {'; '.join(parts)}"


def describe_disassembly(result: Disassembled) -> str:
    """The text of a disassembly."""
    if not result.function:
        lines = [f"nothing disassembled: {result.note}"]
    else:
        target = f" for {result.architecture}" if result.architecture else ""
        lines = [f"{result.function}{target}: {result.instructions} instructions", _mix(result.mix)]
        lines += [result.note] if result.note else []
        lines.append(result.listing)
    if result.others:
        lines.append("other functions: " + "; ".join(name[:NAME_WIDTH] for name in result.others))
    return "\n".join(lines)


def _mix(mix: dict[str, int]) -> str:
    telling = [name for name in mix if name.split(".")[0] in _TELLING]
    ordered = [*telling, *(name for name in mix if name not in telling)]
    shown = ", ".join(f"{name} {mix[name]}" for name in ordered[:KINDS_SHOWN])
    rest = sum(mix[name] for name in ordered[KINDS_SHOWN:])
    return f"counted once each, loops too: {shown}" + (f", others {rest}" if rest else "")
