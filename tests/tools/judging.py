"""Small problems in KernelBench form, and candidates made from them, for tests of the judge on the host."""

from pathlib import Path

from tasks.loader import Task, find_task
from tools.candidate import Candidate
from tools.results import Fault
from tools.verdict import Verdict

INPUTS = """

def get_inputs():
    return [torch.randn(4, 4, 64)]


def get_init_inputs():
    return []
"""
LONG_INPUTS = INPUTS.replace("64", "4096")

NORMALISED = """
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        y = self.conv(x)
        y = self.norm(y)
        z = torch.relu(y)
        return z
"""
"""Same shape in and out, so that a copy of the input has the right form."""

CONVOLUTION = """
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.conv(x)
"""
"""Timed by several tests; PyTorch compiles it for all of them once."""


def task_of(folder: Path, model: str, inputs: str = INPUTS, name: str = "problem") -> Task:
    """A problem file with this model and these inputs, loaded."""
    path = folder / f"{name}.py"
    path.write_text(model + inputs)
    return find_task(path)


def candidate_of(model: str, *changes: tuple[str, str]) -> Candidate:
    """The reference itself as a candidate, with parts of its text replaced."""
    text = model.replace("class Model(", "class ModelNew(")
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        before = text[: text.index(old)].rpartition("\n")[2]
        text = text.replace(old, new.replace("\n", "\n" + before) if before.isspace() else new)
    return Candidate(text)


def verdict_of(result: object) -> Verdict:
    """The verdict of any result of a tool."""
    return result.verdict if isinstance(result, Fault) else Verdict.CORRECT


def message_of(result: object) -> str:
    """The message of a fault; empty for other results."""
    return result.message if isinstance(result, Fault) else ""
