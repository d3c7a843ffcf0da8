"""The loop of one rollout: ask the model, carry out its calls, until something ends it."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent.acting import finish_turn
from agent.asking import ask
from agent.budget import Budget
from agent.course import Course
from agent.ends import end_by
from agent.model import ModelClient
from agent.state import RolloutState
from runs.accounting import seconds_since
from runs.events import Ended, EndReason, Event, Resumed, RolloutStarted
from runs.log import TranscriptLog
from runs.store import RunDirectory

if TYPE_CHECKING:
    # The tools need PyTorch, whose import everything else would wait for.
    from tools.toolbox import Tools


class Rollout:
    """One conversation between a model and the tools; every event is on the disk before the next thing happens.

    What is done next follows from the events alone, so a rollout whose process was killed goes on from its transcript.
    """

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
        history: Sequence[Event] = (),
        context_tokens: int | None = None,
    ) -> None:
        """Prepare a rollout.

        Args:
            run: where its transcript and its candidates are kept.
            started: its first event; of a resumed rollout, the first of `history`.
            client: the model.
            tools: they know the candidates that `history` tells of.
            budget: its own, with its share in the run's; what `history` spent is counted in it.
            watch: is told each event after it is on the disk.
            stopping: once it is set, the rollout ends as interrupted before it spends anything more.
            history: of a rollout that is resumed, all events that its transcript holds.
            context_tokens: what the model takes at most, where that is known.
        """
        self._run = run
        self._started = started
        self._client = client
        self._tools = tools
        self._budget = budget
        self._watch = watch
        self._stopping = stopping or threading.Event()
        self._history = history
        self._state = RolloutState(started, context_tokens)
        for event in history[1:]:
            self._state.see(event)

    def run(self) -> Ended:
        """Go on until an end; the reason is in the event returned, which is also the transcript's last.

        Raises:
            UsageError: the transcript exists already, or another process is writing it.
            StorageError: the transcript can no longer be written.
            Exception: one that nobody foresaw; it is in the transcript, too.
        """
        with TranscriptLog(self._run.transcript(self._started.rollout), self._history) as log:
            course = Course(
                self._run, self._client, self._tools, self._budget, self._watch, self._stopping, self._state, log
            )
            try:
                self._begin(course)
                while True:
                    course.require_not_stopped()
                    ask(course)
                    finish_turn(course)
            except (Exception, KeyboardInterrupt) as error:
                if log.failed:
                    raise
                end = end_by(error)
                ended = Ended(turn=self._state.turn, reason=end.reason, message=end.message, culprit=end.culprit)
                ended = course.record(ended)
                if ended.reason is EndReason.INTERNAL_ERROR:
                    raise
                return ended

    def _begin(self, course: Course) -> None:
        if not self._history:
            course.record(self._started)
            return
        spent, limits = self._budget.spent, self._budget.limits
        gap_s = seconds_since(self._history[-1])
        course.record(Resumed(turn=self._state.turn, spent=spent, limits=limits, gap_s=gap_s))
        finish_turn(course)
