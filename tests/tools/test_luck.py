"""A verdict does not depend on luck: over many draws, what is honest always passes and what is not always fails."""

import math
from collections.abc import Iterator

import pytest
import torch
from narrow_tasks import HONEST, HONEST_TF32, narrowed

from tasks.loader import Task, all_tasks
from tasks.spec import Precision, Target
from tools.accuracy import Errors, Limits, measure
from tools.comparison import LimitsOf, typical_rms
from tools.draws import CONSTANT, FAR, IMPULSES, LARGE, SMALL, UNEVEN, USUAL, Draws, Trial
from tools.oracle import Answer, Oracle
from tools.subject import Named

FEW, MANY = 4, 200
KINDS = (USUAL, FAR, CONSTANT, LARGE, SMALL, IMPULSES, UNEVEN)
STORED = {
    Precision.FP32: torch.float16,
    Precision.TF32: torch.float16,
    Precision.FP16: torch.bfloat16,
    Precision.BF16: torch.float8_e4m3fn,
}
"""What an output must not have been computed from, by class: the next shorter format."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Operations this small take longer on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Run:
    """One verification's draws and answers, on small shapes."""

    def __init__(self, task: Task, precision: Precision) -> None:
        narrow = narrowed(task, precision)
        self.dtype = getattr(torch, narrow.facts.inputs[0].dtype)
        self.oracle = Oracle(narrow, Target.CPU, "cpu")
        # What computes in fp32, whatever the class; the judge sees its outputs in the class's dtype.
        self._wide = Oracle(narrowed(task, Precision.FP32), Target.CPU, "cpu")
        draws = Draws("cpu")
        spec = narrow.facts.inputs[0]
        self.state = draws.state(self.oracle.template)
        shapes = [({"N": 1, "L": narrow.facts.axes[1].minimum}, USUAL)]
        shapes += [({"N": draws.integer(2, 3) if kind is not CONSTANT else 8, "L": 45}, kind) for kind in KINDS]
        self.trials = [Trial(sizes, kind, 0) for sizes, kind in shapes]
        self.inputs = [draws.input(spec, (trial.sizes["N"], 16, trial.sizes["L"]), trial.kind) for trial in self.trials]
        self.answers = [self.oracle.answer([x], self.state) for x in self.inputs]
        self.limits_of = LimitsOf(precision, typical_rms(self.answers))

    def outputs(self, mode: torch.overrides.TorchFunctionMode, stored: torch.dtype = torch.float64) -> list[Named]:
        """What fp32 arithmetic makes of each trial, in the class's dtype; inputs and parameters stored as given."""
        state = {name: _stored(value, stored) for name, value in self.state.items()}
        with mode:
            found = [self._wide.working([_stored(x, stored)], state) for x in self.inputs]
        return [[(name, value.to(self.dtype)) for name, value in outputs[:1]] for outputs in found]

    def used(self, outputs: list[Named]) -> float:
        """The largest error over its limit of all trials; infinite where NaN or infinities stand in the wrong place."""
        return max(_used(self.limits_of, *pair) for pair in zip(outputs, self.answers, strict=True))


def _stored(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype).float() if value.is_floating_point() else value


def _used(limits_of: LimitsOf, output: Named, answer: Answer) -> float:
    return limits_of.output(answer, 0).used_by(measure(output[0][1], answer.exact[0][1]))


def require_no_luck(task: Task, precision: Precision, runs: int) -> None:
    honest = {**HONEST, **HONEST_TF32} if precision is Precision.TF32 else HONEST
    for _ in range(runs):
        run = Run(task, precision)
        for name, mode in honest.items():
            # Cut operands, the closest of all, are at 1 / 1.25.
            assert run.used(run.outputs(mode)) < 0.85, name
        own = [run.oracle.working([x], run.state) for x in run.inputs]
        assert run.used(own) < 0.85, "PyTorch in the class"
        assert run.used(run.outputs(HONEST["PyTorch"], STORED[precision])) > 1.2, STORED[precision]


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
def test_honest_passes_and_shortened_fails(task: Task, precision: Precision) -> None:
    require_no_luck(task, precision, FEW)


@pytest.mark.long
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
def test_honest_passes_and_shortened_fails_however_often(task: Task, precision: Precision) -> None:
    require_no_luck(task, precision, MANY)


@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
def test_flushing_denormals_is_honest(task: Task) -> None:
    """As --use_fast_math does; without it, denormals are kept, and both must pass."""
    run = Run(task, Precision.FP32)
    denormal = [bool(((x != 0) & (x.abs() < torch.finfo(torch.float32).tiny)).any()) for x in run.inputs]
    assert any(denormal)
    assert torch.set_flush_denormal(True), "this processor cannot flush denormals"
    try:
        flushed = run.outputs(HONEST["one accumulator"])
    finally:
        torch.set_flush_denormal(False)
    assert run.used(flushed) < 0.85
    assert run.used(run.outputs(HONEST["one accumulator"])) < 0.85


LONG = (8, 16, 500)
PER_CHANNEL = 8 * 500


def off_everywhere(exact: torch.Tensor, allowed: Limits, share: float) -> torch.Tensor:
    """Every element off by the same share of its channel's RMS: RMS error, channel's and peak are then equal."""
    size = exact.square().mean((0, 2), keepdim=True).sqrt()
    signs = torch.randint(0, 2, exact.shape).double() * 2 - 1
    return exact + share * allowed.rms * size * signs


def off_at_one(exact: torch.Tensor, allowed: Limits, share: float) -> torch.Tensor:
    """One element off by a share of the peak limit, in the quietest channel, so that the whole hardly notices."""
    size = exact.square().mean((0, 2)).sqrt()
    quietest = int(size.argmin())
    output = exact.clone()
    output[1, quietest, 5] += share * allowed.peak * size[quietest]
    return output


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
def test_just_inside_passes_and_just_outside_fails(task: Task, precision: Precision) -> None:
    """By construction: nothing but the distance to the limit may decide."""
    narrow = narrowed(task, precision)
    oracle, draws = Oracle(narrow, Target.CPU, "cpu"), Draws("cpu")
    for kind in KINDS:
        x = draws.input(narrow.facts.inputs[0], LONG, kind)
        answer = oracle.answer([x], draws.state(oracle.template))
        exact, allowed = answer.exact[0][1], LimitsOf(precision, typical_rms([answer])).output(answer, 0)
        for made in (off_everywhere, off_at_one):
            inside, outside = (measure(made(exact, allowed, share), exact) for share in (0.9, 1.1))
            assert not allowed.allow(outside), (kind.name, made.__name__)
            # A peak limit far above the others, as honest answers may set it, leaves room for no such element.
            if made is off_everywhere or allowed.peak / math.sqrt(PER_CHANNEL) < allowed.rms:
                assert allowed.allow(inside), (kind.name, made.__name__)


def test_an_error_of_nothing_is_no_excess() -> None:
    assert Limits(1.0, 1.0, 1.0).used_by(Errors(0.0, 0.0, 0.0, 0, ())) == 0.0
