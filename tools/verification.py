"""Is it right: calls a candidate on drawn shapes and inputs and compares every output with the float64 oracle."""

from dataclasses import replace

import torch

from tools.candidate import Candidate
from tools.comparison import LimitsOf, compare, require_same_form, require_unchanged, typical_rms
from tools.draws import USUAL, Trial, input_shape, trials, valid_size
from tools.library_compute import require_own_kernels, require_own_operators
from tools.oracle import Answer
from tools.results import Check
from tools.session import Session
from tools.subject import Named, Subject
from tools.verdict import Verdict
from tools.workers import CandidateFault


def verify_candidate(session: Session, candidate: Candidate, *, allow_library: bool) -> list[Check]:
    """All checks of a candidate; raises `CandidateFault` at the first that fails."""
    facts = session.task.facts
    plan = trials(facts, session.target, session.draws)
    states = [session.draws.state(session.oracle.template) for _ in range(2)]
    drawn: list[tuple[Trial, Named, Answer]] = []
    for trial in plan:
        inputs = draw_inputs(session, trial)
        answer = session.oracle.answer([value for _, value in inputs], states[trial.instance])
        drawn.append((trial, inputs, answer))
    limits_of = LimitsOf(session.precision, typical_rms([answer for _, _, answer in drawn]))

    memory = max(session.memory_bytes(trial.sizes) for trial in plan)
    subject = session.subject(candidate, memory)
    try:
        checks: list[Check] = []
        session.ready(subject, states[0])
        instance = 0
        for trial, inputs, answer in drawn:
            if trial.instance != instance:
                instance = trial.instance
                session.construct(subject, states[instance])
            state = session.updated_state(states[instance])
            checks += check_call(subject, trial, inputs, state, answer, limits_of, allow_library=allow_library)
        if facts.causal_axis is not None:
            checks.append(_probe_causality(session, subject, states[instance], limits_of))
        return checks
    finally:
        subject.close()


def draw_inputs(session: Session, trial: Trial) -> Named:
    """Inputs of a trial's shape and kind, by name."""
    return [
        (spec.name, session.draws.input(spec, input_shape(spec, trial.sizes), trial.kind))
        for spec in session.task.facts.inputs
    ]


def check_call(
    subject: Subject,
    trial: Trial,
    inputs: Named,
    state: Named,
    answer: Answer,
    limits_of: LimitsOf,
    *,
    allow_library: bool,
) -> list[Check]:
    """Call a candidate once and compare everything it returns; raises `CandidateFault` where something is wrong."""
    try:
        returned = subject.call(inputs, state, expected_bytes(answer))
    except CandidateFault as fault:
        fault.message = f"{fault.message} ({trial.label})"
        raise
    require_unchanged(returned, inputs, trial.label)
    checks = compare(returned, answer, limits_of, trial.label, Verdict.INCORRECT)
    if not allow_library:
        require_own_operators(returned.computing, trial.label)
        require_own_kernels(returned, subject.worker.extensions, trial.label)
    return checks


def expected_bytes(answer: Answer) -> int:
    """Bytes of an answer's outputs in the working dtype."""
    return sum(tensor.numel() * answer.dtypes[name].itemsize for name, tensor in answer.exact) + 4096


def _probe_causality(session: Session, subject: Subject, state: dict[str, torch.Tensor], limits_of: LimitsOf) -> Check:
    """Two calls whose inputs differ from t0 on only; the outputs before t0 must be right in both.

    Compared before t0 alone, so that large outputs after it do not hide small errors before it.
    """
    facts = session.task.facts
    wanted = facts.receptive_field * 2 + session.draws.integer(60, 120)
    sizes = {axis.name: valid_size(axis, wanted if axis.name == facts.causal_axis else 1) for axis in facts.axes}
    length = sizes[str(facts.causal_axis)]
    trial = Trial(sizes, USUAL, 0)
    start = session.draws.integer(facts.receptive_field, length - 2)
    inputs = draw_inputs(session, trial)
    dims = dict(zip((spec.name for spec in facts.inputs), (spec.dims for spec in facts.inputs), strict=True))
    changed = []
    for (name, value), (_, fresh) in zip(inputs, draw_inputs(session, trial), strict=True):
        other = value.clone()
        along = dims[name].index(str(facts.causal_axis)) if facts.causal_axis in dims[name] else None
        if along is not None:
            rest = length - start
            other.narrow(along, start, rest).copy_(fresh.narrow(along, start, rest))
        changed.append((name, other))
    label = f"{trial.label}, causality: inputs changed from t={start} on"
    checks: list[Check] = []
    for given in (inputs, changed):
        answer = session.oracle.answer([value for _, value in given], state)
        returned = subject.call(given, session.updated_state(state), expected_bytes(answer))
        require_same_form(returned, answer, label)
        past = Answer(_before(answer.exact, start), [_before(other, start) for other in answer.honest], answer.dtypes)
        checks = compare(
            replace(returned, outputs=_before(returned.outputs, start)), past, limits_of, label, Verdict.INCORRECT
        )
    return checks[0]


def _before(outputs: Named, start: int) -> Named:
    """The outputs before a time; buffers are taken whole."""
    return [(name, value if name.startswith("state ") else value[..., :start]) for name, value in outputs]
