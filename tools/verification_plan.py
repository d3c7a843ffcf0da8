"""What a verification asks: shapes, inputs and parameters drawn at random, and the oracle's answers to them."""

import math
from dataclasses import replace
from typing import NamedTuple

import torch

from tools.accuracy import measure
from tools.comparison import LimitsOf, typical_rms
from tools.draws import USUAL, Trial, trials
from tools.oracle import Answer
from tools.session import Session
from tools.subject import Named

ROUNDING = 2.0**-24
"""Half a unit in the last place of fp32."""
MOST_AMPLIFIED = 10.0
"""Beyond this, honest kernels differ by what the order of their additions makes of it, and none is more right."""


Asked = tuple[Trial, Named, Answer]
State = dict[str, torch.Tensor]


class Plan(NamedTuple):
    """Everything that one verification asks, with the answers."""

    drawn: tuple[Asked, ...]
    states: tuple[State, ...]
    """The parameters of each instance of the model."""
    limits_of: LimitsOf


class Planner:
    """Draws the plan for each candidate.

    Where candidates are fixed, all having been written before the session began, they share one: the oracle's answers
    take most of a verification's time. Elsewhere what one was asked must stay unknown to whoever writes the next.
    """

    def __init__(self, session: Session, *, fixed_candidates: bool) -> None:
        self._session = session
        self._fixed_candidates = fixed_candidates
        self._plan: Plan | None = None

    def plan(self) -> Plan:
        """The plan for the next candidate; raises HarnessError where the reference fails on a drawn shape."""
        if self._plan is not None:
            return self._plan
        plan = _drawn(self._session)
        if self._fixed_candidates:
            self._plan = plan
        return plan


def _drawn(session: Session) -> Plan:
    states = tuple(session.draws.state(session.oracle.template) for _ in range(2))
    planned = trials(session.task.facts, session.target, session.draws)
    drawn = tuple(asked(session, trial, states[trial.instance]) for trial in planned)
    return Plan(drawn, states, LimitsOf(session.precision, typical_rms([answer for _, _, answer in drawn])))


def asked(session: Session, trial: Trial, state: State) -> Asked:
    """A trial with its inputs and answer; of the usual kind where the reference amplifies rounding on the other."""
    inputs = session.draws.inputs(session.task.facts, trial)
    answer = session.oracle.answer([value for _, value in inputs], state)
    if trial.kind.may_amplify or amplification(session, inputs, state, answer) <= MOST_AMPLIFIED:
        return trial, inputs, answer
    return asked(session, replace(trial, kind=USUAL), state)


def amplification(session: Session, inputs: Named, state: State, answer: Answer) -> float:
    """The relative RMS error of the worst channel of any output, over that of inputs that are off by a rounding each.

    GroupNorm over one channel that is constant divides its rounding errors by sqrt(eps): some 300.
    """
    nudged = [
        value.double() * (1 + ROUNDING * session.draws.uniform(tuple(value.shape), -1.0, 1.0).double())
        if value.is_floating_point()
        else value
        for _, value in inputs
    ]
    moved = session.oracle.exact(nudged, state)
    found = (
        measure(ours, exact)
        for (_, ours), (_, exact) in zip(moved, answer.exact, strict=True)
        if exact.is_floating_point()
    )
    # The RMS of a number that is uniform between -1 and 1 is 1 / sqrt(3).
    return max((max(errors.rms, errors.channel) for errors in found), default=0.0) * math.sqrt(3) / ROUNDING
