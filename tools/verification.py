"""Is it right: calls a candidate on drawn shapes and inputs and compares every output with the float64 oracle."""

from typing import NamedTuple

import torch

from tools.accuracy import measure
from tools.candidate import Candidate
from tools.causality import probe_causality
from tools.comparison import LimitsOf, compare, require_same_form, require_unchanged
from tools.draws import Trial
from tools.library_compute import (
    own_share,
    require_no_library_calls,
    require_own_kernels,
    require_own_operators,
)
from tools.mistakes import likely_mistake
from tools.oracle import Answer
from tools.pieces import same_bits
from tools.results import Check, Determinism
from tools.session import Session
from tools.subject import Named, Returned, Subject
from tools.verdict import Verdict
from tools.verification_plan import Asked, Plan, State
from tools.workers import CandidateFault


class Verification(NamedTuple):
    """What was found about a candidate whose every output was right."""

    checks: tuple[Check, ...]
    determinism: Determinism
    own_kernel_share: float | None
    """Of the kernel time of a call on the benchmark shape; None where no kernel was seen."""


def verify_candidate(session: Session, candidate: Candidate, plan: Plan, *, allow_library: bool) -> Verification:
    """All checks of a candidate; raises `CandidateFault` at the first that fails."""
    drawn, states, limits_of = plan.drawn, plan.states, plan.limits_of
    memory_bytes = max(session.memory_bytes(trial.sizes) for trial, _, _ in drawn)
    subject = session.subject(candidate, memory_bytes)
    try:
        checks: list[Check] = []
        determinism: Determinism | None = None
        share: float | None = None
        session.ready(subject, states[0], shared_bytes=memory_bytes)
        session.start_ahead()
        instance = 0
        for trial, inputs, answer in drawn:
            if trial.instance != instance:
                instance = trial.instance
                session.construct(subject, states[instance])
            state = session.updated_state(states[instance])
            returned = call(subject, inputs, state, answer, trial.label)
            try:
                checks += _compare(returned, answer, limits_of, trial.label)
            except CandidateFault as fault:
                if fault.output:
                    asked = (trial, inputs, answer)
                    fault.likely = likely_mistake(session, subject, plan, asked, fault.output, returned)
                raise
            if not allow_library:
                require_own_operators(returned.computing, trial.label)
                require_no_library_calls(subject.worker.extensions)
                require_own_kernels(returned, subject.worker.extensions, trial.label)
            # The last trial is the benchmark shape.
            share = own_share(returned, subject.worker.extensions)
            if trial.calls > 1:
                determinism = _repeat(subject, trial, inputs, state, answer, limits_of, returned)
        checks += _first_again(subject, session, drawn, states, limits_of)
        if session.task.facts.causal_axis is not None:
            checks.append(probe_causality(session, subject, states[0], limits_of))
        assert determinism is not None, "one trial is asked several times"
        subject.require_bounded()
        return Verification(tuple(checks), determinism, share)
    except CandidateFault:
        # When a look at the worker fell due must not decide which of its faults is told.
        subject.require_bounded()
        raise
    finally:
        session.end(subject)


def _first_again(
    subject: Subject,
    session: Session,
    drawn: tuple[Asked, ...],
    states: tuple[State, ...],
    limits_of: LimitsOf,
) -> list[Check]:
    """Ask the first instance once more, after others were made: a network holds many layers of a kind."""
    subject.recall(0)
    trial, inputs, answer = drawn[1]
    where = f"{trial.label}, the first instance again after a second one was made"
    returned = call(subject, inputs, session.updated_state(states[0]), answer, where)
    return compare(returned, answer, limits_of, where, Verdict.INCORRECT)


def call(subject: Subject, inputs: Named, state: Named, answer: Answer, where: str, *, watch: bool = True) -> Returned:
    """What one untimed call returns; raises `CandidateFault` where it fails or changes an input."""
    try:
        returned = subject.call(inputs, state, answer.expected_bytes, watch=watch)
    except CandidateFault as fault:
        fault.message = f"{fault.message} ({where})"
        raise
    require_unchanged(returned, inputs, where)
    return returned


def _compare(returned: Returned, answer: Answer, limits_of: LimitsOf, where: str) -> list[Check]:
    try:
        return compare(returned, answer, limits_of, where, Verdict.INCORRECT)
    except CandidateFault as fault:
        if not returned.launch_error:
            raise
        raise CandidateFault(
            Verdict.CRASHED,
            f"a kernel launch failed ({where}): {returned.launch_error}. So its output was never written; check grid, "
            "block and shared memory of <<<...>>>, and look at cudaGetLastError() after each launch.",
        ) from fault


def _repeat(
    subject: Subject,
    trial: Trial,
    inputs: Named,
    state: Named,
    answer: Answer,
    limits_of: LimitsOf,
    first: Returned,
) -> Determinism:
    """Call again with the inputs of a call that was right; every answer must be right, but not the same."""
    # What a call returns lies where the next one writes.
    kept = {name: value.clone() for name, value in first.outputs}
    identical, largest = 1, 0.0
    for number in range(2, trial.calls + 1):
        where = f"{trial.label}, call {number} of {trial.calls} with the same inputs"
        again = call(subject, inputs, state, answer, where)
        outputs = require_same_form(again, answer, where)
        if all(same_bits(value, kept[name]) for name, value in outputs.items()):
            identical += 1
            continue
        try:
            compare(again, answer, limits_of, where, Verdict.INCORRECT)
        except CandidateFault as fault:
            fault.message = f"{fault.message} The first such call was right: look for a race between threads or blocks."
            raise
        largest = max(largest, *(_difference(value, kept[name]) for name, value in outputs.items()))
    return Determinism(trial=trial.label, calls=trial.calls, identical=identical, largest_difference=largest)


def _difference(output: torch.Tensor, first: torch.Tensor) -> float:
    return measure(output, first).peak if output.is_floating_point() else 0.0
