"""The baselines: the task's reference as PyTorch runs it, written as candidates so that the same loop times them."""

import ast

from tasks.loader import Task
from tasks.spec import Target
from tools.candidate import Candidate

EAGER = "eager"
CUDNN_AUTOTUNED = "cudnn-autotuned"
COMPILED = "torch.compile"

_EAGER = """

class ModelNew(Model):
    pass
"""
_AUTOTUNED = """

import torch

torch.backends.cudnn.benchmark = True


class ModelNew(Model):
    pass
"""
_COMPILED = """

class ModelNew(Model):
    def prepare(self):
        self.compile()
"""


def kernelbench_source(task: Task) -> str:
    """The task's file in plain KernelBench form: without its facts and the import of their types."""
    tree = ast.parse(task.source)
    dropped: set[int] = set()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        is_facts = any(isinstance(target, ast.Name) and target.id == "TASK" for target in targets)
        is_import = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tasks"
        if is_facts or is_import:
            dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [line for number, line in enumerate(task.source.splitlines(), 1) if number not in dropped]
    text = "\n".join(lines) + "\n"
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text


def baseline_candidates(task: Task, target: Target) -> dict[str, Candidate]:
    """The baselines of a target, by name."""
    source = kernelbench_source(task)
    texts = {EAGER: _EAGER, COMPILED: _COMPILED}
    if target is Target.CUDA:
        texts[CUDNN_AUTOTUNED] = _AUTOTUNED
    return {name: Candidate(source + ending) for name, ending in texts.items()}
