"""The one place of a server where candidates are evaluated: a thread with a judge, whose turn each call waits for."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from agent.control import EndRollout
from agent.workplace import Workplace, workplace
from runs.events import EndReason
from tasks.errors import StoppedError
from tasks.loader import Task
from tasks.spec import Target
from tools.results import ToolReply

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools

Result = TypeVar("Result")
CLOSING_S = 5.0


class Bench:
    """Evaluates for all rollouts of a server, of one task at a time, one call after the other."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.doing = ""
        """What is being carried out, or what the judge said last about it."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench")
        self._held = ExitStack()
        self._place: tuple[Task, Workplace] | None = None
        self._why = ""
        self._stopped: Future[None] = Future()
        self._closed: Future[None] | None = None
        self._lock = threading.Lock()

    def work_on(self, task: Task) -> Workplace:
        """A workplace for a task; that of another task is given up. Measures the baselines, unless it was open.

        Raises:
            StoppedError: the server stops.
            KernelwrightError: this machine cannot evaluate it.
        """
        return self._in_turn(lambda: self._open(task))

    def tools(self, tools: "Tools") -> "Tools":
        """The same tools, whose calls are carried out here; raise EndRollout where the server stops meanwhile."""
        return _QueuedTools(tools, self._in_turn, self._note)

    def stop(self, why: str) -> None:
        """Have nobody wait any longer; what is being carried out is abandoned."""
        with self._lock:
            if not self._stopped.done():
                self._why = why
                self._stopped.set_result(None)

    def close(self) -> bool:
        """End the judge's processes once it is stopped; False where it still carries something out, and ends only with
        this process."""
        with self._lock:
            if self._closed is not None:
                return self._closed.done()
            self._closed = self._thread.submit(self._held.close)
            self._thread.shutdown(wait=False)
        with contextlib.suppress(TimeoutError):
            self._closed.result(CLOSING_S)
            return True
        return False

    def _open(self, task: Task) -> Workplace:
        if self._place is None or self._place[0] != task:
            self._place = None
            self._held.close()
            self._note("measuring the baselines")
            place = self._held.enter_context(workplace(task, self.target, 1, self._note))
            self._place = task, place
        return self._place[1]

    def _note(self, what: str) -> None:
        self.doing = what

    def _in_turn(self, work: Callable[[], Result]) -> Result:
        def unless_stopped() -> Result:
            if self._stopped.done():
                raise StoppedError(self._why)
            return work()

        try:
            future = self._thread.submit(unless_stopped)
        except RuntimeError as error:
            raise StoppedError(self._why) from error
        either: tuple[Future[Any], ...] = (future, self._stopped)
        wait(either, return_when=FIRST_COMPLETED)
        if future.done():
            return future.result()
        raise StoppedError(self._why)


class _QueuedTools:
    """As `tools.toolbox.Tools`."""

    def __init__(
        self,
        tools: "Tools",
        in_turn: Callable[[Callable[[], ToolReply]], ToolReply],
        note: Callable[[str], None],
    ) -> None:
        self._tools = tools
        self._in_turn = in_turn
        self._note = note

    def definitions(self) -> list[dict[str, object]]:
        return self._tools.definitions()

    def candidate_text(self, candidate_id: str) -> str:
        return self._tools.candidate_text(candidate_id)

    def remember(self, text: str) -> None:
        self._tools.remember(text)

    def call(self, name: str, arguments: str) -> ToolReply:
        def work() -> ToolReply:
            self._note(f"carrying out {name}")
            return self._tools.call(name, arguments)

        try:
            return self._in_turn(work)
        except StoppedError as error:
            raise EndRollout(EndReason.INTERRUPTED, str(error)) from error
