"""The candidates of the throughput benchmark: as many as are asked for, no two of which share a build."""

import re
from pathlib import Path
from typing import NamedTuple

from tasks.spec import Target

TASKS = ("causal_conv", "depthwise_separable")
_ROOT = Path(__file__).resolve().parents[1]
_TEMPLATES = {
    Target.CUDA: {task: _ROOT / "benchmarks" / "seed_style" / f"{task}.py" for task in TASKS},
    Target.CPU: {
        "causal_conv": _ROOT / "tests" / "candidates" / "cpu" / "causal_naive.py",
        "depthwise_separable": _ROOT / "tests" / "candidates" / "cpu" / "depthwise_naive.py",
    },
}
_STEPS, _OUTPUTS, _UNROLL, _TILE = (64, 128, 256, 512), (4, 8, 16, 32), (1, 2), (64, 128, 256, 512)


class Variant(NamedTuple):
    """One candidate."""

    task: str
    name: str
    text: str


def variants(target: Target, count: int) -> list[Variant]:
    """So many candidates, the tasks by turns."""
    made = []
    for number in range(count):
        task, turn = TASKS[number % len(TASKS)], number // len(TASKS)
        text = _TEMPLATES[target][task].read_text(encoding="utf-8")
        # Of these each template has its own.
        text = _with_constant(text, "STEPS", _STEPS[turn % 4])
        text = _with_constant(text, "OUTPUTS", _OUTPUTS[turn // 4 % 4])
        text = _with_constant(text, "UNROLL", _UNROLL[turn // 16 % 2])
        text = _with_constant(text, "TILE", _TILE[turn % 4])
        # Functions' names stand in the sources, so that equal constants still make different builds.
        text = re.sub(rf"\b{task}(?=\b|_kernel)", f"{task}_{number}", text)
        made.append(Variant(task, f"{task}_{number}", re.sub(r'\bname="\w+"', f'name="{task}_{number}"', text)))
    return made


def _with_constant(text: str, name: str, value: int) -> str:
    return re.sub(rf"\b{name} = \d+;", f"{name} = {value};", text)
