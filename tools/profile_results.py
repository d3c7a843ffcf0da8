"""What `profile` finds out: where the time of a call goes, and what bounds it. Advice, never a verdict."""

from typing import Literal

from pydantic import Field

from tasks.record import Record
from tools.kernel_resources import KernelResources

OccupancyLimit = Literal["threads", "registers", "shared memory", "block slots"]


class Occupancy(Record):
    """How many blocks of a kernel fit on one multiprocessor at once, by its resources alone."""

    blocks_per_sm: int
    warps_per_sm: int
    share: float
    """Resident warps over the most that the device can hold, 0 to 1; what is achieved is less or equal."""
    limited_by: tuple[OccupancyLimit, ...]
    """What admits no further block; several where they admit equally many."""
    waves: float
    """Blocks of the grid over those that the whole device holds at once."""


class Counters(Record):
    """What Nsight Compute measured of one kernel; None where it gave no number."""

    sm_throughput: float | None = None
    """Share of the multiprocessors' peak, 0 to 1, as all below that are no bytes."""
    dram_throughput: float | None = None
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    achieved_occupancy: float | None = None
    l1_hit_rate: float | None = None
    l2_hit_rate: float | None = None
    stalls: dict[str, float] = Field(default_factory=dict)
    """Warps that wait for a reason while one issues, by reason: the largest few."""


class KernelProfile(Record):
    """One kernel, over all its launches in a call; or one kind of copy."""

    name: str
    launches: float
    """In one call."""
    ns: float
    """In one call, the median of the calls."""
    share: float
    """Of the time of all kernels and copies of a call, 0 to 1."""
    grid: tuple[int, int, int] | None = None
    """Blocks of its longest launch; None for copies."""
    block: tuple[int, int, int] | None = None
    """Threads of a block."""
    registers: int | None = None
    """Of a thread."""
    shared_bytes: int | None = None
    """Of a block, static and dynamic."""
    occupancy: Occupancy | None = None
    resources: KernelResources | None = None
    """What ptxas reported when it was built; None for kernels that are not the candidate's."""
    counters: Counters | None = None


class HostThreads(Record):
    """What the threads of a candidate's process did on the host during the timed calls."""

    busy_threads: int
    """Threads that computed for at least a tenth of the time."""
    busy_cores: float
    """Processor time over time, of all threads together."""


class Profiled(Record):
    """Where a candidate's time on the benchmark shape goes. The times come from the candidate's own process."""

    status: Literal["profiled"] = "profiled"
    candidate: str
    shape: str
    calls: int
    call_ns: float | None = None
    """The median of the calls: on a GPU from the start of the first kernel to the end of the last. None where no kernel
    was seen."""
    busy_ns: float | None = None
    """The part of it in which some kernel or copy ran; None on the host."""
    kernels: tuple[KernelProfile, ...] = ()
    """By time, longest first, at most 100; empty on the host."""
    threads: HostThreads | None = None
    """None on a GPU."""
    byte_count: int
    """What the task moves at least: inputs, parameters and outputs once."""
    flop_count: int
    peak_bytes_per_s: float | None
    peak_flops_per_s: float | None
    floor_ns: float | None
    counters_missing: str = ""
    """Why there are no figures of Nsight Compute, and what to do; empty where there are, and on the host."""
    sandbox: str = ""
    seconds: float = 0.0
