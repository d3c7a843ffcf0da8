"""Records the kernels and copies that a GPU runs in one call, with the form in which they were launched."""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig

MOST_KEPT = 2000
_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
_NAME_WIDTH = 1000


class KernelTrace:
    """PyTorch's profiler, from `start` to `stop`. Grid, block and registers stand only in the file that it writes
    (CUPTI's record of the launch, as kineto prints it), not in its events."""

    def __init__(self) -> None:
        self._config = ProfilerConfig(
            ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig(profile_all_threads=True)
        )

    def start(self) -> None:
        """Record from here on."""
        activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
        _prepare_profiler(self._config, activities)
        _enable_profiler(self._config, activities)

    def stop(self) -> list[dict[str, Any]]:
        """End the recording, once the GPU is done; what ran, in order, as `tools.replies.Traced` has it."""
        result = _disable_profiler()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            result.save(str(path))
            events = json.loads(path.read_text(errors="replace"))["traceEvents"]
        ran = [launch_of(event) for event in events if event.get("ph") == "X" and event.get("cat") in _KINDS]
        return sorted(ran, key=lambda each: each["start_ns"])[:MOST_KEPT]


def launch_of(event: dict[str, Any]) -> dict[str, Any]:
    """What `tools.replies.Traced` has of an event of the file; times there are in microseconds."""
    told = event.get("args", {})
    return {
        "name": str(event["name"])[:_NAME_WIDTH],
        "start_ns": round(float(event["ts"]) * 1e3),
        "ns": round(float(event.get("dur", 0)) * 1e3),
        "grid": told.get("grid"),
        "block": told.get("block"),
        "registers": told.get("registers per thread"),
        "shared_bytes": told.get("shared memory"),
    }


def displace_cache(size_bytes: int) -> None:
    """Displace whatever the GPU's cache holds by reading a buffer of so many bytes."""
    if size_bytes:
        torch.ones(size_bytes // 4, dtype=torch.float32, device="cuda").sum()
