"""What the reference would answer with one mistake in it: whoever answers the same has probably made it.

The mistakes are those of the mutants that change what is computed (`tools.mutants`), and weights that are read in
another order. All of it is the task's own code and ours; nothing here comes from a candidate.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from tasks.errors import HarnessError
from tasks.loader import Task
from tasks.spec import Target
from tools import alterations
from tools.accuracy import Limits, measure
from tools.diagnosis import shift_between
from tools.draws import USUAL, Draws, input_shape, trials
from tools.mutants import changed_work, record
from tools.oracle import Oracle

State = dict[str, torch.Tensor]
_MOST_NAMED = 2
"""Where more mistakes than this answer the same, none of them is likely."""
_LOOSER = 2.0


class Alternative(NamedTuple):
    """One mistake."""

    does: str
    """What somebody who makes it does, as a sentence without a subject."""
    oracle: Oracle
    state: Callable[[State], State]


def alternatives(task: Task, target: Target, device: str) -> list[Alternative]:
    """The mistakes that can be made in a task; raises HarnessError where its reference cannot be run."""
    plain = Oracle(task, target, device)
    return [*_altered(task, target, device), *_relaid(plain)]


def _altered(task: Task, target: Target, device: str) -> Iterator[Alternative]:
    host = Oracle(task, target, "cpu")
    draws = Draws("cpu")
    trial = trials(task.facts, target, draws)[2]
    inputs = [draws.input(spec, input_shape(spec, trial.sizes), USUAL) for spec in task.facts.inputs]
    seen = record(task, target, (inputs, draws.state(host.template)))
    base = task.load().model_class
    for _, does, call in changed_work(task, host, seen):
        yield Alternative(does, Oracle(task, target, device, model_class=_altered_class(base, call)), dict)


def _altered_class(base: type[torch.nn.Module], call: str) -> type[torch.nn.Module]:
    code = compile(call, "<alteration>", "eval")

    def forward(self: torch.nn.Module, *inputs: torch.Tensor) -> Any:
        return eval(code, {**vars(alterations), "Model": base, "self": self, "inputs": inputs})

    return type("Altered", (base,), {"forward": forward})


def _relaid(oracle: Oracle) -> Iterator[Alternative]:
    """Weights of convolutions (out, in, taps) and of linear layers (out, in), read in another order."""
    for name, value in oracle.template.items():
        shape = tuple(value.shape)
        if len(shape) == 3 and shape[2] > 1:
            yield _with(oracle, name, "takes the taps of {} in reverse order", lambda weight: weight.flip(-1))
        if len(shape) in (2, 3) and shape[0] == shape[1] > 1:
            yield _with(oracle, name, "takes output for input channels of {}", lambda weight: weight.transpose(0, 1))
        if len(shape) == 3 and shape[1] > 1 and shape[2] > 1:
            yield _with(oracle, name, "reads {} as (out, taps, in), it is (out, in, taps)", _taps_before_inputs)
            yield _with(oracle, name, "reads {} as (taps, in, out), it is (out, in, taps)", _taps_first)
        if len(shape) == 3 and shape[0] > 1 and shape[2] > 1:
            yield _with(oracle, name, "reads {} as (taps, out, in), it is (out, in, taps)", _taps_then_outputs)


def _taps_before_inputs(weight: torch.Tensor) -> torch.Tensor:
    outputs, inputs, taps = weight.shape
    return weight.reshape(outputs, taps, inputs).transpose(1, 2)


def _taps_first(weight: torch.Tensor) -> torch.Tensor:
    outputs, inputs, taps = weight.shape
    return weight.reshape(taps, inputs, outputs).permute(2, 1, 0)


def _taps_then_outputs(weight: torch.Tensor) -> torch.Tensor:
    outputs, inputs, taps = weight.shape
    return weight.reshape(taps, outputs, inputs).permute(1, 2, 0)


def _with(oracle: Oracle, name: str, does: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Alternative:
    def state(given: State) -> State:
        return {**given, name: change(given[name].contiguous()).contiguous()}

    return Alternative(does.format(name), oracle, state)


def matching(
    choices: list[Alternative],
    output: torch.Tensor,
    index: int,
    inputs: list[torch.Tensor],
    state: State,
    limits: Limits,
) -> list[str]:
    """What those do whose answer an output is; none where it is the answer of too many.

    Args:
        choices: the mistakes to try.
        output: one output of a candidate.
        index: which of the outputs it is.
        inputs: of the call.
        state: parameters and buffers.
        limits: how far the output might be from the right answer.
    """
    found = []
    shifted = []
    for choice in choices:
        try:
            answer = choice.oracle.exact(inputs, choice.state(state))[index][1]
        except HarnessError:
            # A mistake that the reference cannot make on this shape.
            continue
        if answer.shape != output.shape:
            continue
        if limits.loosened(_LOOSER).allow(measure(output, answer)):
            found.append(choice.does)
        elif step := shift_between(output, answer, limits):
            shifted.append(f"{choice.does}, and comes {abs(step)} {'late' if step > 0 else 'early'} along the length")
    named = found or shifted
    return named if len(named) <= _MOST_NAMED else []
