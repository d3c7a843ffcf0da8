"""The course of one rollout: its parts, and the one way in which something is written down."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from agent.budget import Budget
from agent.control import EndRollout
from agent.ends import STOPPED
from agent.model import ModelClient
from agent.state import RolloutState
from runs.events import EndReason, Event
from runs.log import TranscriptLog
from runs.store import RunDirectory

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools

AnyEvent = TypeVar("AnyEvent", bound=Event)


@dataclass
class Course:
    """What asking the model and carrying out its calls share."""

    run: RunDirectory
    client: ModelClient
    tools: "Tools"
    budget: Budget
    watch: Callable[[Event], None]
    stopping: threading.Event
    state: RolloutState
    log: TranscriptLog

    def record(self, event: AnyEvent) -> AnyEvent:
        """Put an event on the disk, then into the state, then tell who watches; returns it as it was written."""
        written = self.log.append(event)
        self.state.see(written)
        self.watch(written)
        return written

    def require_not_stopped(self) -> None:
        """Raise EndRollout once somebody wants the rollout to stop."""
        if self.stopping.is_set():
            raise EndRollout(EndReason.INTERRUPTED, STOPPED)
