"""Calls a candidate that was timed a few times only as often as others, on a shape that takes no time.

Who computes the first calls and then repeats itself, or keeps answers by where an input lay, is found by many calls.
Where each takes tens of milliseconds on the benchmark shape and is far slower than the baseline, they are made here.
"""

from tools.comparison import LimitsOf, compare, require_unchanged
from tools.draws import USUAL, Trial, few_samples
from tools.measurement import LEAST_CALLS
from tools.timer import Timer
from tools.verdict import Verdict


def call_often(timer: Timer) -> None:
    """Make up for what is missing to `LEAST_CALLS`.

    Raises:
        CandidateFault: an answer is wrong (`stale_output`), an input was changed, or the call failed.
    """
    missing = LEAST_CALLS - timer.calls
    if missing <= 0:
        return
    timer.subject.worker.resume()
    trial = Trial(few_samples(timer.session.task.facts, timer.session.draws), USUAL, 0)
    for number in range(timer.calls + 1, LEAST_CALLS + 1):
        _ask(timer, trial, f"call {number} of one instance, {trial.label}")


def _ask(timer: Timer, trial: Trial, where: str) -> None:
    session = timer.session
    inputs = session.draws.inputs(session.task.facts, trial)
    answer = timer.reference.answer([value for _, value in inputs])
    returned = timer.subject.call(inputs, session.updated_state(timer.state), answer.expected_bytes, watch=False)
    require_unchanged(returned, inputs, where)
    compare(returned, answer, LimitsOf(session.precision, 0.0), where, Verdict.STALE_OUTPUT)
