"""A rollout of 300 turns survives what servers, tools, disks, clocks and people do to it."""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path

import pytest
from scripted import ScriptedModel, ScriptedTools, beginning, call, compile_call

from agent.budget import Budget
from agent.conversation import Conversation
from agent.loop import Rollout
from agent.model import (
    AssistantMessage,
    ContextOverflowError,
    Message,
    ModelReply,
    Patience,
    QuotaError,
    Retry,
    ToolDefinition,
    ToolMessage,
)
from agent.resuming import can_go_on, resumed
from runs import events as events_module
from runs.accounting import spending_of
from runs.config import Limits
from runs.events import (
    Compacted,
    Ended,
    EndReason,
    Event,
    ModelReplied,
    Resumed,
    Retried,
    RolloutStarted,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.store import RunDirectory
from runs.summary import summarize
from tasks.errors import HarnessError, ModelServerError, StorageError, UnavailableError
from tools.candidate import Candidate
from tools.results import ToolReply

TURNS = 300
FASTEST = 137
LIMITS = Limits(turns=TURNS)
CONTEXT_TOKENS = 60_000


class Kill(BaseException):
    """Nothing of the harness sees it, like a signal that cannot be caught; the transcript stays as it is."""


def code(turn: int) -> str:
    return f"# version {turn}\n" + "y[i] += w[j] * x[i + j];\n" * 120


SPEEDUPS = {code(turn): 3.0 if turn == FASTEST else 1.0 + turn / TURNS for turn in range(1, TURNS + 1)}
CALL_FAULTS = {
    25: ModelReply(text="Broken.", tool_calls=(ToolCall(id="b", name="compile_kernel", arguments='{"kernel_co'),)),
    40: ModelReply(text="Half.", tool_calls=(compile_call("half", "h"), call("submit", "s")), finish_reason="length"),
    70: ModelReply(text=""),
    71: ModelReply(text="Well.", finish_reason="length"),
    85: ModelReply(text="Unknown.", tool_calls=(call("dance", "d"), call("benchmark", "e"))),
    260: ModelReply(text="Half a pair: \ud83d", tool_calls=(compile_call("# \ud83d", "p"),)),
    285: ModelReply(text="A list.", tool_calls=(ToolCall(id="l", name="submit", arguments="[1]"),)),
}
SERVER_FAULTS: dict[int, Exception | KeyboardInterrupt] = {
    55: ContextOverflowError("too long"),
    100: ModelServerError("the server is gone"),
    160: KeyboardInterrupt(),
    175: QuotaError("no money left"),
    215: ContextOverflowError("too long"),
    235: ZeroDivisionError("nobody foresaw it"),
}
TOOL_FAULTS: dict[int, BaseException] = {
    115: HarnessError("the worker is gone"),
    225: UnavailableError("the GPU fell off the bus"),
    265: Kill(),
}
KILLS, TORN, FULL_DISK, STOPPED, BUSY = 130, 145, 190, 245, (10, 11)


class LastYear(datetime):
    """A clock that was set back."""

    @classmethod
    def now(cls, _: tzinfo | None = None) -> "LastYear":
        """Always the same."""
        return cls(2025, 6, 1, tzinfo=UTC)


class Troubles:
    """What goes wrong, each once; `met` says what has."""

    def __init__(self) -> None:
        self.met: list[str] = []
        self.stopping = threading.Event()
        self.full = False

    def once(self, name: str) -> bool:
        """Whether this is the first time."""
        if name in self.met:
            return False
        self.met.append(name)
        return True


class TroubledModel(ScriptedModel):
    """Answers turn after turn with a new version, as far as it is let."""

    def __init__(self, troubles: Troubles, given: int) -> None:
        super().__init__(())
        self._troubles, self._turn = troubles, given

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:  # noqa: ARG002
        require_whole(messages)
        turn = self._turn + 1
        if turn in BUSY and self._troubles.once(f"busy at {turn}"):
            patience.on_retry(Retry(attempt=1, error="busy", wait_s=0.0))
        if turn in SERVER_FAULTS and self._troubles.once(f"server at {turn}"):
            raise SERVER_FAULTS[turn]
        if turn == STOPPED and self._troubles.once("stopped"):
            self._troubles.stopping.set()
        self._turn = turn
        if turn in CALL_FAULTS:
            self._troubles.once(f"call at {turn}")
            return CALL_FAULTS[turn]
        if turn == TURNS:
            return ModelReply(text="Done.", tool_calls=(call("submit", "s", candidate=Candidate(code(FASTEST)).id),))
        usage = Usage(input_tokens=sum(len(message.text) for message in messages) // 3, output_tokens=1000)
        calls = (compile_call(code(turn), f"c{turn}"), call("benchmark", f"t{turn}"))
        return ModelReply(text=f"Version {turn}.", tool_calls=calls, usage=usage)


class TroubledTools(ScriptedTools):
    """Tools that fail at certain versions."""

    def __init__(self, troubles: Troubles) -> None:
        super().__init__(speedups=SPEEDUPS)
        self._troubles = troubles

    def call(self, name: str, arguments: str) -> ToolReply:
        for turn, fault in TOOL_FAULTS.items():
            if f"# version {turn}\\n" in arguments and self._troubles.once(f"tool at {turn}"):
                raise fault
        return super().call(name, arguments)


def require_whole(messages: Sequence[Message]) -> None:
    """Raise AssertionError unless every call is followed by exactly its result, as servers demand."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert open_calls.pop(0) == message.call_id
        else:
            assert not open_calls
        if isinstance(message, AssistantMessage):
            open_calls = sorted((each.id for each in message.tool_calls), key=lambda each: each == "s")
    assert not open_calls


def incarnation(run: RunDirectory, troubles: Troubles) -> Ended | None:
    """One process's share of the rollout; None where it did not come to an end."""

    def watch(event: Event) -> None:
        if isinstance(event, ModelReplied) and event.turn == KILLS and troubles.once("killed after a reply"):
            raise Kill
        if isinstance(event, ToolReturned) and event.turn == TORN and troubles.once("killed in a line"):
            with run.transcript("rollout-1").open("ab") as file:
                file.write(b'{"sequence":9999,"turn":145,"ti')
            raise Kill
        if isinstance(event, ModelReplied) and event.turn == FULL_DISK and troubles.once("disk full"):
            troubles.full = True

    exists = run.transcript("rollout-1").exists()
    events = run.events("rollout-1") if exists else ()
    model = TroubledModel(troubles, sum(isinstance(event, ModelReplied) for event in events))
    tools, stopping = TroubledTools(troubles), troubles.stopping
    budget = Budget(LIMITS, None, before=spending_of(events))
    if exists:
        rollout = resumed(run, events, model, tools, budget, watch, stopping=stopping, context_tokens=CONTEXT_TOKENS)
    else:
        rollout = Rollout(
            run, beginning(LIMITS), model, tools, budget, watch, stopping=stopping, context_tokens=CONTEXT_TOKENS
        )
    try:
        return rollout.run()
    except (Kill, StorageError, ZeroDivisionError):
        return None


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Troubles], None]:
    """Makes the disk full for the write after `Troubles.full` is set, and lets nothing wait for the disk."""

    def prepare(troubles: Troubles) -> None:
        def fsync(_: int) -> None:
            if troubles.full:
                troubles.full = False
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fsync)

    return prepare


def test_rollout_of_300_turns_with_20_faults_ends_with_a_complete_log(
    tmp_path: Path, disk: Callable[[Troubles], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path)
    run.candidates.mkdir()
    troubles = Troubles()
    disk(troubles)
    ended, incarnations = None, 0
    while ended is None or ended.reason is not EndReason.SUBMITTED:
        ended = incarnation(run, troubles)
        troubles.stopping.clear()
        incarnations += 1
        assert incarnations < 30, ended
        if run.events("rollout-1")[-1].turn >= STOPPED and troubles.once("clock set back"):
            monkeypatch.setattr(events_module, "datetime", LastYear)
    events = run.events("rollout-1")
    assert len(troubles.met) >= 20
    check(events, run)
    assert sum(isinstance(event, Resumed) for event in events) == incarnations - 1
    assert sum(isinstance(event, Retried) for event in events) == len(BUSY)


def check(events: Sequence[Event], run: RunDirectory) -> None:
    replies = [event for event in events if isinstance(event, ModelReplied)]
    results = [(event.turn, event.call_id) for event in events if isinstance(event, ToolReturned)]
    assert [event.turn for event in replies] == list(range(1, TURNS + 1))
    assert sorted(results) == sorted((event.turn, each.id) for event in replies for each in event.tool_calls)
    assert [event.sequence for event in events] == list(range(len(events)))
    assert not can_go_on(events, Limits())
    summary = summarize(events)
    assert summary.spent is not None and summary.spent.turns == TURNS
    assert summary.best is not None and summary.best.candidate == Candidate(code(FASTEST)).id
    compactions = [event for event in events if isinstance(event, Compacted)]
    assert len(compactions) > 3
    assert all(event.tokens_after < CONTEXT_TOKENS for event in compactions if event.tokens_after is not None)
    assert code(FASTEST).strip() in compactions[-1].note
    assert run.candidate_text(Candidate(code(FASTEST)).id) == code(FASTEST)
    for length in range(2, len(events), 97):
        require_rebuilt(events[:length])


def require_rebuilt(events: Sequence[Event]) -> None:
    """Raise AssertionError unless the conversation can be had again from any beginning of the log."""
    first = events[0]
    assert isinstance(first, RolloutStarted)
    conversation = Conversation(first)
    for event in events[1:]:
        conversation.see(event)
    assert conversation.messages[0].text == first.system_prompt
