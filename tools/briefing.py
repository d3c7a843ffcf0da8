"""What a model is told about a task before it starts: the source, the machine, the bound and the time to beat."""

from tasks.record import Record
from tasks.spec import Mode, Precision, Target
from tools.results import Baseline


class Machine(Record):
    """The machine that evaluates, as far as a kernel's author must know it."""

    device: str
    """The GPU's name, or the processor's."""
    cores: int
    """Streaming multiprocessors of the GPU, or cores of the host."""
    capability: str = ""
    """Compute capability such as `9.0`; the vector extension of a host."""
    cache_bytes: int
    """L2 of the GPU, last level of the host."""
    peak_bytes_per_s: float | None
    peak_flops_per_s: float | None
    """Of the fastest legitimate unit in the task's precision class; None where it is not known."""
    torch: str
    python: str
    cuda: str = ""
    """The version of the CUDA compiler; empty where there is none."""
    driver: str = ""


class Briefing(Record):
    """Everything the system prompt says about one task on one machine."""

    task: str
    title: str
    mode: Mode
    target: Target
    precision: Precision
    source: str
    """The task's file, as its author wrote it."""
    sizes: dict[str, int]
    """The benchmark shape, by axis."""
    input_shapes: dict[str, tuple[int, ...]]
    parameters: dict[str, tuple[int, ...]]
    """Names and shapes of the reference's parameters and buffers."""
    notes: str
    machine: Machine
    flop_count: int
    """From PyTorch's flop counter on the benchmark shape."""
    byte_count: int
    """Each input, parameter and output once."""
    floor_ns: float | None
    baselines: tuple[Baseline, ...]
