"""Parameters are the harness's: how they are matched, when `prepare` runs, and that an instance's own ones are used."""

from collections.abc import Iterator

import pytest
from judging import INPUTS, candidate_of, message_of, task_of, verdict_of

from tasks.spec import Target
from tools.candidate import Candidate
from tools.judge import Judge
from tools.server_process import Processes
from tools.verdict import Verdict

CONVOLUTION = """
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 3)

    def forward(self, x):
        return self.conv(x)
"""
CANDIDATE = """
import torch
from torch import nn
from torch.nn import functional

{before}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    {methods}

    def forward(self, x):
        {forward}
"""
PLAIN = "self.conv = nn.Conv1d(4, 6, 3)"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    task = task_of(tmp_path_factory.mktemp("convolution"), CONVOLUTION, INPUTS)
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        yield judge


def written(init: str = PLAIN, methods: str = "", forward: str = "return self.conv(x)", before: str = "") -> Candidate:
    """A candidate of these parts, each with its lines indented as its place asks."""
    parts = {"init": (init, 8), "methods": (methods, 4), "forward": (forward, 8), "before": (before, 0)}
    return Candidate(
        CANDIDATE.format(**{name: part.replace("\n", "\n" + " " * n) for name, (part, n) in parts.items()})
    )


FLAT = (
    "self.conv = nn.Module()\n"
    "self.conv.weight = nn.Parameter(torch.empty(6, 12))\n"
    "self.conv.bias = nn.Parameter(torch.empty(6, 1))"
)
OWN = "self.taps = torch.zeros(3, 4, 6)\nself.offset = torch.zeros(6)"
LOAD = (
    "def load_reference(self, state):\n"
    "    self.taps = state['conv.weight'].permute(2, 1, 0).contiguous()\n"
    "    self.offset = state['conv.bias'].clone()"
)
FROM_TAPS = "return functional.conv1d(x, self.taps.permute(2, 1, 0), self.offset)"


@pytest.mark.parametrize(
    "candidate",
    [
        written(),
        written(FLAT, forward="return functional.conv1d(x, self.conv.weight.view(6, 4, 3), self.conv.bias.view(6))"),
        written(OWN, LOAD, FROM_TAPS),
        written(PLAIN + "\nnn.init.zeros_(self.conv.weight)"),
    ],
    ids=["same names and shapes", "same count of elements", "load_reference", "its own values are replaced"],
)
def test_parameters_that_match(judge: Judge, candidate: Candidate) -> None:
    result = judge.verify(candidate)
    assert verdict_of(result) is Verdict.CORRECT, message_of(result)


@pytest.mark.parametrize(
    ("init", "listed"),
    [
        ("self.kernel = nn.Conv1d(4, 6, 3)", "kernel.bias (6,), kernel.weight (6, 4, 3)"),
        ("self.conv = nn.Conv1d(4, 6, 3, bias=False)", "conv.weight (6, 4, 3)"),
        ("self.conv = nn.Conv1d(4, 6, 5)", "conv.bias (6,), conv.weight (6, 4, 5)"),
        (PLAIN + "\nself.register_buffer('scale', torch.ones(1))", "conv.weight (6, 4, 3), scale (1,)"),
        ("pass", "(none)"),
    ],
    ids=["names", "one is missing", "count", "one too many", "nothing"],
)
def test_parameters_that_do_not_match_are_listed_from_both_sides(judge: Judge, init: str, listed: str) -> None:
    """R6."""
    result = judge.verify(written(init))
    assert verdict_of(result) is Verdict.CONTRACT_ERROR
    assert "reference: conv.bias (6,), conv.weight (6, 4, 3)\n" in message_of(result)
    assert listed in message_of(result).partition("ModelNew:")[2]
    assert "load_reference" in message_of(result)


def test_load_reference_that_fails_is_the_candidates_fault(judge: Judge) -> None:
    result = judge.verify(written(OWN, LOAD.replace("conv.bias", "bias"), FROM_TAPS))
    assert verdict_of(result) is Verdict.CRASHED
    assert "KeyError: 'bias'" in message_of(result)
    assert "in load_reference" in message_of(result)


def test_prepare_is_called_once_for_an_instance_after_it_was_filled(judge: Judge) -> None:
    prepare = (
        "def prepare(self):\n"
        "    assert not hasattr(self, 'packed')\n"
        "    assert not torch.equal(self.conv.weight, self.first)\n"
        "    self.packed = self.conv.weight.double()"
    )
    init = PLAIN + "\nself.first = self.conv.weight.detach().clone()"
    forward = "return functional.conv1d(x, self.packed.float(), self.conv.bias)"
    result = judge.verify(written(init, prepare, forward))
    assert verdict_of(result) is Verdict.CORRECT, message_of(result)


def test_weights_packed_on_the_first_call_are_fine(judge: Judge) -> None:
    forward = (
        "if self.packed is None:\n    self.packed = self.conv.weight.clone()\n"
        "return functional.conv1d(x, self.packed, self.conv.bias)"
    )
    result = judge.verify(written(PLAIN + "\nself.packed = None", forward=forward))
    assert verdict_of(result) is Verdict.CORRECT, message_of(result)


def test_weights_cached_outside_the_instance_are_found(judge: Judge) -> None:
    forward = (
        "if 'weight' not in CACHE:\n    CACHE['weight'] = self.conv.weight.clone()\n"
        "return functional.conv1d(x, CACHE['weight'], self.conv.bias)"
    )
    result = judge.verify(written(before="CACHE = {}", forward=forward))
    assert verdict_of(result) is Verdict.INCORRECT


def test_parameters_drawn_in_the_constructor_do_not_matter(judge: Judge) -> None:
    """R6. Seeding PyTorch gives nothing away of what the harness draws."""
    seeded = candidate_of(CONVOLUTION, ("super().__init__()", "super().__init__()\ntorch.manual_seed(0)"))
    assert verdict_of(judge.verify(seeded)) is Verdict.CORRECT
