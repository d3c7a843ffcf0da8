"""Tells the author of a wrong candidate which class of mistake it looks like; asks it once or twice more for that."""

import torch

from tools.accuracy import measure
from tools.alternatives import matching
from tools.comparison import require_same_form
from tools.diagnosis import LEAST_LENGTH, diagnose
from tools.pieces import same_bits
from tools.session import Session
from tools.subject import Returned, Subject
from tools.verification_plan import Asked, Plan
from tools.workers import CandidateFault

MOST_ELEMENTS = 1 << 20
"""Of an output that is looked at; answers of larger ones take too long to try."""
_CHANGES = (
    "a race, or memory that was never written: the same inputs gave another wrong output in the next call. Look for a "
    "missing __syncthreads(), for blocks that write the same elements, and for reads of what nobody wrote; `sanitize` "
    "can name the place on a GPU."
)


def likely_mistake(session: Session, subject: Subject, plan: Plan, failed: Asked, output: str, first: Returned) -> str:
    """A sentence on the likely class of mistake, or an empty text. Never raises: the candidate was found wrong, and
    neither what it does meanwhile nor what cannot be found out about it changes that.

    Args:
        session: of the task.
        subject: the candidate, its worker alive, on the instance that failed.
        plan: what it was asked.
        failed: at which it was wrong.
        output: the name of the output that is wrong.
        first: what it answered there.
    """
    try:
        return _likely(session, subject, plan, failed, output, first)
    # References with mistakes in them run a task author's code, and take the device's memory.
    except Exception:
        return ""


def _likely(session: Session, subject: Subject, plan: Plan, failed: Asked, output: str, first: Returned) -> str:
    # What a call returns lies where the next one writes.
    kept = dict(first.outputs)[output].clone()
    try:
        again = _call(session, subject, plan, failed)
    except CandidateFault as fault:
        return f"something that changes from call to call: asked again, the candidate ends as {fault.verdict}."
    if not same_bits(kept, again[output]):
        return _CHANGES
    buffer = plan.states[failed[0].instance].get(output.removeprefix("state "))
    if buffer is not None and same_bits(kept, buffer):
        return f"{output.removeprefix('state ')} is as it was before the call: in training mode a call updates it."
    shown = failed if _tells(failed, output) else _one_that_tells(plan, failed, output)
    if shown is None:
        return ""
    try:
        if shown[0].instance != failed[0].instance:
            subject.recall(shown[0].instance)
        value = again[output] if shown is failed else _call(session, subject, plan, shown)[output]
    except CandidateFault:
        return ""
    return _pattern(session, plan, shown, output, value, elsewhere=shown is not failed)


def _pattern(session: Session, plan: Plan, shown: Asked, output: str, value: torch.Tensor, *, elsewhere: bool) -> str:
    trial, inputs, answer = shown
    index = [name for name, _ in answer.exact].index(output)
    exact, limits = answer.exact[index][1], plan.limits_of.output(answer, index)
    if limits.allow(measure(value, exact)):
        return (
            f"something about this shape, for on {trial.label} the same output is right: an edge, a tail, or index "
            "arithmetic with sizes taken for granted."
        )
    given = [tensor for _, tensor in inputs]
    same = matching(session.alternatives, value, index, given, plan.states[trial.instance], limits)
    found = f"the output is that of a kernel that {', or '.join(same)}." if same else diagnose(value, exact, limits)
    return f"{found} (Seen on {trial.label}.)" if found and elsewhere else found


def _call(session: Session, subject: Subject, plan: Plan, asked: Asked) -> dict[str, torch.Tensor]:
    trial, inputs, answer = asked
    state = session.updated_state(plan.states[trial.instance])
    return require_same_form(subject.call(inputs, state, answer.expected_bytes), answer, trial.label)


def _tells(asked: Asked, output: str) -> bool:
    """Whether an answer is long enough to show a pattern, and small enough to be tried."""
    trial, _, answer = asked
    exact = dict(answer.exact)[output]
    if trial.kind.form != "dense" or not exact.is_floating_point() or exact.ndim < 2:
        return False
    return exact.shape[-1] >= LEAST_LENGTH and exact.numel() <= MOST_ELEMENTS


def _one_that_tells(plan: Plan, failed: Asked, output: str) -> Asked | None:
    """Of an instance that the worker has: the one that failed, or an earlier one."""
    known = (asked for asked in plan.drawn if asked[0].instance <= failed[0].instance)
    return next((asked for asked in known if _tells(asked, output)), None)
