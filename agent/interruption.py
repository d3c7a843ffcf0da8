"""Stopping rollouts that have threads of their own: no signal reaches them in what they wait for."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from typing import Any, TypeVar

from agent.model import Message, ModelClient, ModelReply, Patience, Retry, ToolDefinition
from tasks.errors import StoppedError

Result = TypeVar("Result")


class Interruption:
    """Tells rollouts to stop; what they wait for goes on without them, until the program ends."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        """Set once everybody is told to stop."""
        self._stopped: Future[None] = Future()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Tell everybody to stop; more than once is the same as once."""
        with self._lock:
            if not self.stopping.is_set():
                self.stopping.set()
                self._stopped.set_result(None)

    def wait_for(self, call: Callable[[], Result]) -> Result:
        """The result of a call, which is made in a thread of its own, or what it raised.

        Raises:
            StoppedError: everybody was told to stop meanwhile.
        """
        future = begun(call)
        either: tuple[Future[Any], ...] = (future, self._stopped)
        wait(either, return_when=FIRST_COMPLETED)
        if future.done():
            return future.result()
        raise StoppedError("stopped while waiting")


class InterruptibleClient:
    """A model client whose rollout does not wait for a reply once it is told to stop."""

    def __init__(self, client: ModelClient, interruption: Interruption) -> None:
        self._client = client
        self._interruption = interruption

    @property
    def name(self) -> str:
        """As of `ModelClient`."""
        return self._client.name

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
        """As of `ModelClient`; raises StoppedError once everybody is told to stop."""
        # The transcript ends when the rollout does: a reply that is not waited for must write nothing more into it.
        lock = threading.Lock()
        stopped = False

        def on_retry(retry: Retry) -> None:
            with lock:
                if stopped:
                    raise StoppedError("nobody waits for this reply any more")
                patience.on_retry(retry)

        told = replace(patience, on_retry=on_retry)
        try:
            return self._interruption.wait_for(lambda: self._client.query(messages, tools, told))
        except StoppedError:
            with lock:
                stopped = True
            raise


def begun(call: Callable[[], Result]) -> "Future[Result]":
    """The result to come of a call, which is made in a thread of its own; the program's end does not wait for it."""
    future: Future[Result] = Future()
    threading.Thread(target=_make, args=(call, future), daemon=True).start()
    return future


def _make(call: Callable[[], Result], future: "Future[Result]") -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
