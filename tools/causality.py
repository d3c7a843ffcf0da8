"""The probe of causality: what changes from a time on may move no output before it."""

import math
from dataclasses import replace

import torch

from tools.comparison import LimitsOf, compare, require_same_form
from tools.draws import USUAL, Trial, valid_size
from tools.results import Check
from tools.session import Session
from tools.subject import Named, Subject
from tools.verdict import Verdict

Cuts = dict[str, dict[int, int]]
"""For each output the dimensions that follow the causal axis, and how many of their elements lie before the change."""


def probe_causality(session: Session, subject: Subject, state: dict[str, torch.Tensor], limits_of: LimitsOf) -> Check:
    """Two calls whose inputs differ from t0 on only; the outputs before t0 must be right in both.

    Compared before t0 alone, so that large outputs after it do not hide small errors before it.

    Raises:
        CandidateFault: an output before t0 is wrong, or the call failed.
    """
    facts = session.task.facts
    wanted = facts.receptive_field * 2 + session.draws.integer(60, 120)
    trial = _trial(session, wanted)
    start = session.draws.integer(facts.receptive_field, trial.sizes[str(facts.causal_axis)] - 2)
    cuts = _cuts(session, trial, start, state)
    given = session.draws.inputs(facts, trial)
    label = f"{trial.label}, causality: inputs changed from t={start} on"
    checks: list[Check] = []
    for inputs in (given, _changed(session, trial, given, start)):
        values = [value for _, value in inputs]
        answer = session.oracle.answer(values, state, part=lambda outputs: _before(outputs, cuts))
        returned = subject.call(inputs, session.updated_state(state), answer.expected_bytes)
        require_same_form(returned, answer, label)
        past = replace(answer, exact=_before(answer.exact, cuts))
        seen = replace(returned, outputs=_before(returned.outputs, cuts))
        checks = compare(seen, past, limits_of, label, Verdict.INCORRECT)
    return checks[0]


def _trial(session: Session, wanted: int) -> Trial:
    facts = session.task.facts
    sizes = {axis.name: valid_size(axis, wanted if axis.name == facts.causal_axis else 1) for axis in facts.axes}
    return Trial(sizes, USUAL, 0)


def _changed(session: Session, trial: Trial, inputs: Named, start: int) -> Named:
    """The inputs with new values from `start` on; an input without the causal axis stays."""
    facts = session.task.facts
    changed = []
    for spec, (name, value), (_, fresh) in zip(facts.inputs, inputs, session.draws.inputs(facts, trial), strict=True):
        other = value.clone()
        if facts.causal_axis in spec.dims:
            along = spec.dims.index(facts.causal_axis)
            rest = value.shape[along] - start
            other.narrow(along, start, rest).copy_(fresh.narrow(along, start, rest))
        changed.append((name, other))
    return changed


def _cuts(session: Session, trial: Trial, start: int, state: dict[str, torch.Tensor]) -> Cuts:
    """Where each output's elements before `start` end, found by asking the reference for a second length.

    An output may follow the axis in any dimension and at another rate: a stride makes it grow more slowly, a
    transposed convolution faster. One that does not grow is compared whole.
    """
    facts = session.task.facts
    length = trial.sizes[str(facts.causal_axis)]
    # Twice a valid size is valid.
    longer = replace(trial, sizes={**trial.sizes, str(facts.causal_axis): 2 * length})
    ours, theirs = (
        session.oracle.working([value for _, value in session.draws.inputs(facts, each)], state)
        for each in (trial, longer)
    )
    cuts: Cuts = {}
    for (name, output), (_, other) in zip(ours, theirs, strict=True):
        sizes = enumerate(zip(output.shape, other.shape, strict=True))
        cuts[name] = {dim: math.ceil(start * (more - size) / length) for dim, (size, more) in sizes if more != size}
    return cuts


def _before(outputs: Named, cuts: Cuts) -> Named:
    return [(name, _narrowed(value, cuts.get(name, {}))) for name, value in outputs]


def _narrowed(output: torch.Tensor, cuts: dict[int, int]) -> torch.Tensor:
    for dim, count in cuts.items():
        output = output.narrow(dim, 0, min(count, output.shape[dim]))
    return output
