"""Carrying out the calls of a reply: each gets exactly one result, in order, `submit` last."""

import time
from collections.abc import Sequence

from agent.control import EndRollout
from agent.course import Course
from agent.ends import end_by_tool, fault_of_ours
from agent.prompt import phrase
from agent.stuck import END_AT, WARN_FROM
from runs.events import BudgetSpent, EndReason, Nudged, Submitted, ToolCall, ToolReturned
from tasks.errors import HarnessError, UnavailableError
from tools.results import Evaluation, Refused, ToolReply

MOST_NUDGES = 3
"""How many replies in a row may hold nothing to carry out; one more ends the rollout."""


def finish_turn(course: Course) -> None:
    """Answer the calls of the last reply that have no result yet; all of them, unless the rollout was resumed.

    Raises:
        EndRollout: a result ends the rollout, or it may spend no more.
    """
    try:
        _act(course)
    finally:
        if not course.log.failed:
            budget = course.budget
            course.record(
                BudgetSpent(turn=course.state.turn, spent=budget.spent, left=budget.left, run=budget.spent_by_run)
            )


def _act(course: Course) -> None:
    state = course.state
    if state.reply is None:
        return
    if state.is_cut_off:
        _refuse(course, state.calls[len(state.results) :], phrase("cut_off"))
    else:
        _carry_out(course)
    if state.useless_in_a_row > MOST_NUDGES:
        said = f"{state.useless_in_a_row} replies in a row held no tool call that could be carried out."
        raise EndRollout(EndReason.MODEL_STOPPED, said)
    if not state.calls and not state.nudged:
        course.record(Nudged(turn=state.turn, text=phrase("cut_off" if state.is_cut_off else "nudge")))


def _carry_out(course: Course) -> None:
    state = course.state
    calls, known = state.calls, tuple(state.results)
    for position, call in enumerate(calls):
        end = _submission(course, known[position]) if position < len(known) else _execute(course, call)
        if end is not None:
            if end.reason in (EndReason.SUBMITTED, EndReason.STUCK):
                _refuse(course, calls[max(len(known), position + 1) :], phrase("over"))
            # After any other end they stay open, for `resume` to carry out.
            raise end


def _execute(course: Course, call: ToolCall) -> EndRollout | None:
    """Carry out one call; returns what ends the rollout, if its result does."""
    course.require_not_stopped()
    course.budget.check_work()
    began = time.monotonic()
    try:
        reply = course.tools.call(call.name, call.arguments)
    except (HarnessError, UnavailableError) as error:
        raise end_by_tool(call.name, error) from error
    course.budget.charge_device(reply.device_seconds)
    if reply.candidate is not None:
        course.run.save_candidate(reply.candidate, course.tools.candidate_text(reply.candidate))
    repeated = course.state.repetition.with_next(call.name, call.arguments, reply)
    if WARN_FROM <= repeated < END_AT:
        reply = reply.model_copy(update={"text": f"{reply.text}\n\n{phrase('stuck')}"})
    returned = _answer(course, call, reply, executed=True, seconds=time.monotonic() - began)
    if repeated >= END_AT:
        said = f"The last {repeated} calls had all been made before, with the same results; this one was {call.name}."
        return EndRollout(EndReason.STUCK, said)
    return fault_of_ours(reply.result) or _submission(course, returned)


def _submission(course: Course, returned: ToolReturned) -> EndRollout | None:
    """The end of the rollout, if a result is that of a submission; a fault of ours leaves it to be made again."""
    result = returned.reply.result
    if not (returned.reply.ends_rollout and isinstance(result, Evaluation)) or fault_of_ours(result):
        return None
    if not course.state.submitted:
        course.record(Submitted(turn=course.state.turn, candidate=result.candidate, evaluation=result))
    said = result.message if result.fault is None else f"{result.verdict.value}: {result.message}"
    return EndRollout(EndReason.SUBMITTED, said)


def _refuse(course: Course, calls: Sequence[ToolCall], text: str) -> None:
    """Answer calls without carrying them out: a server wants an answer to each."""
    for call in calls:
        _answer(course, call, ToolReply(text=text, result=Refused(message=text)), executed=False, seconds=0.0)


def _answer(course: Course, call: ToolCall, reply: ToolReply, *, executed: bool, seconds: float) -> ToolReturned:
    return course.record(
        ToolReturned(
            turn=course.state.turn, call_id=call.id, tool=call.name, reply=reply, executed=executed, seconds=seconds
        )
    )
