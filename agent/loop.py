"""The loop of one rollout: ask the model, carry out its calls, until something ends it."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent.budget import Budget
from agent.control import EndRollout, Nudge
from agent.conversation import Conversation
from agent.model import ContextOverflowError, ModelClient, ModelReply, Patience, RecordingExhaustedError, Retry
from agent.prompt import phrase
from runs.events import (
    BudgetSpent,
    Compacted,
    Ended,
    EndReason,
    Event,
    ModelReplied,
    Retried,
    RolloutStarted,
    Submitted,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.log import TranscriptLog
from runs.store import RunDirectory
from tasks.errors import HarnessError, ModelServerError, StoppedError, UnavailableError
from tools.results import Evaluation, Fault, Refused, ToolReply, ToolResult
from tools.verdict import culprit

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools

MOST_NUDGES = 3
"""How many replies in a row may hold nothing to carry out; one more ends the rollout."""


class Rollout:
    """One conversation between a model and the tools; every event is on the disk before the next thing happens."""

    _log: TranscriptLog

    def __init__(
        self,
        run: RunDirectory,
        started: RolloutStarted,
        client: ModelClient,
        tools: "Tools",
        budget: Budget,
        watch: Callable[[Event], None],
        *,
        stopping: threading.Event | None = None,
    ) -> None:
        """Once `stopping` is set, the rollout ends as interrupted before it spends anything more."""
        self._run = run
        self._started = started
        self._client = client
        self._tools = tools
        self._budget = budget
        self._watch = watch
        self._stopping = stopping or threading.Event()
        self._conversation = Conversation(started.system_prompt, started.opening)
        self._turn = 0
        self._nudges = 0

    def run(self) -> Ended:
        """Go on until an end; the reason is in the event returned, which is also the transcript's last."""
        with TranscriptLog(self._run.transcript(self._started.rollout)) as log:
            self._log = log
            try:
                self._record(self._started)
                while True:
                    self._step()
            except EndRollout as end:
                return self._end(end.reason, end.message)
            except (KeyboardInterrupt, StoppedError):
                return self._end(EndReason.INTERRUPTED, "Stopped from the keyboard or by a signal.")
            except Exception as error:
                if not log.failed:
                    self._end(EndReason.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
                raise

    def _step(self) -> None:
        """One turn."""
        self._require_not_stopped()
        self._budget.check()
        self._turn += 1
        reply = self._query()
        self._conversation.add_reply(reply)
        try:
            self._act_on(reply)
            self._nudges = 0
        except Nudge as nudge:
            self._nudges += 1
            if self._nudges > MOST_NUDGES:
                message = f"{self._nudges} replies in a row held no tool call that could be carried out."
                raise EndRollout(EndReason.MODEL_STOPPED, message) from nudge
            if nudge.text:
                self._conversation.add_user(nudge.text)
        finally:
            if not self._log.failed:
                budget = self._budget
                self._record(
                    BudgetSpent(turn=self._turn, spent=budget.spent, left=budget.left, run=budget.spent_by_run)
                )

    def _query(self) -> ModelReply:
        """Ask for a reply, of a shorter conversation if the whole one is too long for the model."""
        patience = Patience(seconds=self._budget.seconds_left, on_retry=self._note_retry)
        while True:
            began = time.monotonic()
            self._budget.reserve(Usage())
            try:
                reply = self._client.query(self._conversation.messages, self._tools.definitions(), patience)
            except ContextOverflowError as error:
                removed, kept = self._conversation.compact(phrase("compacted"))
                if not removed:
                    raise EndRollout(EndReason.CONTEXT_OVERFLOW, str(error)) from error
                self._record(Compacted(turn=self._turn, turns_removed=removed, turns_kept=kept))
                continue
            except RecordingExhaustedError as error:
                raise EndRollout(EndReason.RECORDING_EXHAUSTED, str(error)) from error
            except ModelServerError as error:
                self._budget.check()
                raise EndRollout(EndReason.MODEL_SERVER_ERROR, str(error)) from error
            finally:
                self._budget.release()
            self._note_reply(reply, time.monotonic() - began)
            return reply

    def _act_on(self, reply: ModelReply) -> None:
        """Give every call of a reply exactly one answer; `submit` comes last."""
        if reply.finish_reason == "length":
            # The arguments may be complete JSON and still be half of the code the model meant to write.
            self._refuse(reply.tool_calls, phrase("cut_off"))
            raise Nudge("" if reply.tool_calls else phrase("cut_off"))
        if not reply.tool_calls:
            raise Nudge(phrase("nudge"))
        calls = sorted(reply.tool_calls, key=lambda call: call.name == "submit")
        for position, call in enumerate(calls, start=1):
            end = self._execute(call)
            if end is not None:
                self._refuse(calls[position:], phrase("over"))
                raise end

    def _execute(self, call: ToolCall) -> EndRollout | None:
        """Carry out one call; returns what ends the rollout, if its result does."""
        self._require_not_stopped()
        self._budget.check_work()
        began = time.monotonic()
        try:
            reply = self._tools.call(call.name, call.arguments)
        except (HarnessError, UnavailableError) as error:
            raise EndRollout(EndReason.TOOL_FAULT, f"{call.name}: {error}") from error
        self._budget.charge_device(reply.device_seconds)
        if reply.candidate is not None:
            self._run.save_candidate(reply.candidate, self._tools.candidate_text(reply.candidate))
        self._answer(call, reply, executed=True, seconds=time.monotonic() - began)
        result = reply.result
        if fault := _fault_of_ours(result):
            return EndRollout(EndReason.TOOL_FAULT, fault.message)
        if reply.ends_rollout and isinstance(result, Evaluation):
            self._record(Submitted(turn=self._turn, candidate=result.candidate, evaluation=result))
            said = result.message if result.fault is None else f"{result.verdict.value}: {result.message}"
            return EndRollout(EndReason.SUBMITTED, said)
        return None

    def _refuse(self, calls: Sequence[ToolCall], text: str) -> None:
        """Answer calls without carrying them out: a server wants an answer to each."""
        for call in calls:
            reply = ToolReply(text=text, result=Refused(message=text))
            self._answer(call, reply, executed=False, seconds=0.0)

    def _answer(self, call: ToolCall, reply: ToolReply, *, executed: bool, seconds: float) -> None:
        self._record(
            ToolReturned(
                turn=self._turn, call_id=call.id, tool=call.name, reply=reply, executed=executed, seconds=seconds
            )
        )
        self._conversation.add_result(call.id, reply.text)

    def _require_not_stopped(self) -> None:
        if self._stopping.is_set():
            raise EndRollout(EndReason.INTERRUPTED, "Stopped from the keyboard or by a signal.")

    def _note_reply(self, reply: ModelReply, seconds: float) -> None:
        cost = self._budget.charge(reply.usage)
        self._record(ModelReplied(turn=self._turn, seconds=seconds, cost_usd=cost, **reply.model_dump()))

    def _note_retry(self, retry: Retry) -> None:
        self._record(Retried(turn=self._turn, attempt=retry.attempt, error=retry.error, wait_s=retry.wait_s))

    def _end(self, reason: EndReason, message: str) -> Ended:
        ended = self._log.append(Ended(turn=self._turn, reason=reason, message=message))
        self._watch(ended)
        return ended

    def _record(self, event: Event) -> None:
        self._watch(self._log.append(event))


def _fault_of_ours(result: ToolResult) -> Fault | None:
    """The fault of the machine or the harness in a result, if that is what it is."""
    fault = result.fault if isinstance(result, Evaluation) else result
    return fault if isinstance(fault, Fault) and culprit(fault.verdict) in ("machine", "harness") else None
