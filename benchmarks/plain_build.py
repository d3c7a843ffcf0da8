"""Builds one candidate as PyTorch does it, in a process of its own: the other arm of `build.py`, which starts it.

    python benchmarks/plain_build.py FILE TASK RESULT

The candidate is executed here, without a sandbox: only for texts that are trusted.
"""

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from build_records import PlainBuild
from torch.utils import cpp_extension

from tasks.loader import find_task
from tasks.spec import Target


class _Timed:
    """PyTorch's `load_inline`, with a clock around it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.libraries: list[str] = []
        self._load_inline: Callable[..., Any] = cpp_extension.load_inline

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Build, and note how long it took."""
        started = time.monotonic()
        try:
            module = self._load_inline(*args, **kwargs)
        finally:
            self.seconds += time.monotonic() - started
        self.libraries.append(module.__file__)
        return module


def build(file: Path, task_name: str) -> PlainBuild:
    """Import the candidate, construct it and, where it has built nothing by then, call it once on the CPU."""
    timed = cpp_extension.load_inline = _Timed()
    task = find_task(task_name)
    names: dict[str, Any] = {"__name__": "candidate"}
    error = ""
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
        model = names["ModelNew"](*task.load().init_inputs)
        if not timed.libraries:
            sizes = task.facts.benchmark_sizes(Target.CPU)
            shapes = [[sizes[d] if isinstance(d, str) else d for d in spec.dims] for spec in task.facts.inputs]
            model(*(torch.zeros(shape) for shape in shapes))
    except Exception:
        # A call on the CPU fails after its build; whether there is a library is what counts.
        error = "" if timed.libraries else traceback.format_exc()[-4000:]
    return PlainBuild(seconds=timed.seconds, libraries=tuple(timed.libraries), error=error)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    result = build(Path(sys.argv[1]), sys.argv[2])
    Path(sys.argv[3]).write_text(result.model_dump_json(), encoding="utf-8")
