"""A client in the model's place: its calls are the replies of a rollout, so that the loop treats it as any model."""

import itertools
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from agent.model import Message, ModelReply, Patience, ToolDefinition, WaitingStoppedError
from runs.events import Ended, Event, ToolCall, ToolReturned
from tasks.errors import KernelwrightError
from tools.results import ToolReply


class RolloutOverError(KernelwrightError):
    """A call came, or was still waiting, when the rollout ended."""


@dataclass(frozen=True)
class Answered:
    """What came of a call."""

    reply: ToolReply
    ended: Ended | None
    """The end of the rollout, where the call brought it about."""


@dataclass(frozen=True)
class _Waiting:
    call: ToolCall
    answer: "Future[Answered]"


class Caller:
    """Calls from any thread become replies of one call each, in the order in which they came."""

    def __init__(self, name: str) -> None:
        """`name` is the client's, for the record."""
        self.name = name
        self._numbers = itertools.count(1)
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Of what follows."""
        self._open: dict[str, Future[Answered]] = {}
        """By the id of the call."""
        self._returned: ToolReturned | None = None
        """The result whose turn is not finished yet."""
        self._left = ""
        """Why no further call will come; empty while some may."""
        self._over = ""
        """How the rollout ended; empty while it goes on."""

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended."""
        with self._lock:
            return bool(self._over)

    def call(self, tool: str, arguments: str) -> "Future[Answered]":
        """Hand in a call; its future can be cancelled until it is carried out.

        Args:
            tool: the tool's name.
            arguments: JSON.

        Returns:
            The answer, which comes when the turn is finished and on the disk; RolloutOverError where there is none.
        """
        answer: Future[Answered] = Future()
        with self._lock:
            if self._over:
                answer.set_exception(RolloutOverError(self._over))
                return answer
            call = ToolCall(id=f"call-{next(self._numbers)}", name=tool, arguments=arguments)
            self._open[call.id] = answer
            self._waiting.put(_Waiting(call, answer))
        return answer

    def leave(self, why: str) -> None:
        """End the rollout once the call that is being carried out is answered."""
        with self._lock:
            self._left = self._left or why
        self._waiting.put(None)

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:  # noqa: ARG002
        """The next call; raises WaitingStoppedError where no further one will come."""
        self._answer(None)
        while True:
            waiting = self._waiting.get()
            if waiting is None:
                raise WaitingStoppedError(self._left)
            if waiting.answer.set_running_or_notify_cancel():
                return ModelReply(text="", tool_calls=(waiting.call,), finish_reason="tool_calls")
            with self._lock:
                del self._open[waiting.call.id]

    def see(self, event: Event) -> None:
        """Take in what the rollout has written down."""
        match event:
            case ToolReturned():
                self._returned = event
            case Ended():
                self._answer(event)
                self.fail(f"The rollout ended ({event.reason.value}): {event.message}")
            case _:
                pass

    def fail(self, how: str) -> None:
        """The rollout is over: whoever waits is told how it ended, and so is whoever calls from now on."""
        with self._lock:
            self._over = self._over or how
            waiting, self._open = self._open, {}
        for answer in waiting.values():
            if answer.running() or answer.set_running_or_notify_cancel():
                answer.set_exception(RolloutOverError(self._over))

    def _answer(self, ended: Ended | None) -> None:
        """Whoever waits for the last result may have it: its turn is finished."""
        returned, self._returned = self._returned, None
        if returned is None:
            return
        with self._lock:
            answer = self._open.pop(returned.call_id)
        answer.set_result(Answered(returned.reply, ended))
