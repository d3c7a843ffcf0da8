"""Asking the model for its next reply, of a shorter conversation where the whole one is too long for it."""

import time

from agent.compaction import after_overflow, before_overflow
from agent.control import EndRollout
from agent.course import Course
from agent.ends import end_by_server
from agent.model import ContextOverflowError, ModelReply, Patience, Retry
from runs.events import Compacted, EndReason, ModelReplied, Retried, Usage
from tasks.errors import ModelServerError


def ask(course: Course) -> None:
    """Begin a turn with the model's next reply.

    Raises:
        EndRollout: a limit is reached, or there will be no reply.
    """
    state, budget = course.state, course.budget
    budget.check()
    state.begin_turn()
    if room := before_overflow(state, course.run.candidate_text):
        course.record(room)
    while True:
        budget.reserve(Usage(input_tokens=state.window.tokens(state.conversation.size_bytes)))
        began = time.monotonic()
        try:
            reply = _query(course)
            cost = budget.charge(reply.usage)
        except ContextOverflowError as error:
            course.record(_room_after(course, error))
        except ModelServerError as error:
            budget.release()
            end = end_by_server(error)
            if end.reason is EndReason.MODEL_SERVER_ERROR:
                # A client that ran out of time can only say that its server failed.
                budget.check()
            raise end from error
        else:
            seconds = time.monotonic() - began
            course.record(ModelReplied(turn=state.turn, seconds=seconds, cost_usd=cost, **reply.model_dump()))
            return
        finally:
            budget.release()


def _query(course: Course) -> ModelReply:
    def note(retry: Retry) -> None:
        course.record(Retried(turn=course.state.turn, attempt=retry.attempt, error=retry.error, wait_s=retry.wait_s))

    patience = Patience(seconds=course.budget.seconds_left, on_retry=note, stopping=course.stopping)
    return course.client.query(course.state.conversation.messages, course.tools.definitions(), patience)


def _room_after(course: Course, error: ContextOverflowError) -> Compacted:
    room = after_overflow(course.state, course.run.candidate_text)
    if room is None:
        raise EndRollout(EndReason.CONTEXT_OVERFLOW, str(error)) from error
    return room
