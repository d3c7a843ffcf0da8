"""Kills a rollout at every point where something lands on the disk or a call is made, resumes it, and compares.

Run by `test_kills.py` in a process of its own, which forks one for each kill. Prints what it did as JSON.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import BinaryIO

from scripted import ScriptedModel, ScriptedTools, beginning, call, compile_call, resume

import runs.log
import runs.store
from agent.budget import Budget
from agent.loop import Rollout
from agent.model import ContextOverflowError, Message, ModelReply, Patience, Retry, ToolDefinition
from agent.resuming import can_go_on
from runs.accounting import spending_of
from runs.config import Limits
from runs.events import Event, ModelReplied, Resumed, ToolCall, ToolReturned, Usage
from runs.store import RunDirectory
from tools.results import ToolReply

SPEEDUPS = {"first": 1.5, "second" * 400: 2.5, "third": 2.0}
USAGE = Usage(input_tokens=1000, output_tokens=10)
SCRIPT = (
    ModelReply(text="A first version.", tool_calls=(compile_call("first", "a"), call("benchmark", "b")), usage=USAGE),
    ModelReply(text="I think.", reasoning="Well.", reasoning_fields={"reasoning": "Well."}, usage=USAGE),
    ModelReply(text="Half.", tool_calls=(compile_call("fir", "c"), call("benchmark", "d")), finish_reason="length"),
    ModelReply(
        text="Broken.", tool_calls=(ToolCall(id="e", name="compile_kernel", arguments='{"kernel'),), usage=USAGE
    ),
    ModelReply(text="Longer.", tool_calls=(compile_call("second" * 400, "f"), call("benchmark", "g")), usage=USAGE),
    ModelReply(text="Unknown.", tool_calls=(call("dance", "h"),), usage=USAGE),
    ModelReply(text="Half again.", finish_reason="length", usage=USAGE),
    ModelReply(
        text="Done.",
        tool_calls=(call("submit", "s"), compile_call("third", "i"), call("benchmark", "j"), call("submit", "t")),
        usage=USAGE,
    ),
)
RETRIED, OVERFLOWING = 3, 7
"""The turns before which the server fails once, and finds the conversation too long once."""
PROCESSES = 2
LIMITS = Limits(turns=20, tokens=100_000)


class Bomb:
    """Kills this process at a certain boundary, counted from 1; without one, only counts them."""

    def __init__(self, at: int | None) -> None:
        self._at = at
        self.passed = 0

    def pass_by(self) -> None:
        """One boundary."""
        self.passed += 1
        if self.passed == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


class Model(ScriptedModel):
    """Goes on after the replies on the disk, and notes what it is asked where no kill can undo it."""

    def __init__(self, path: Path, bomb: Bomb, given: int) -> None:
        super().__init__(())
        self._path, self._bomb, self._given = path, bomb, given
        self._refused = False

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:  # noqa: ARG002
        turn = self._given + 1
        if turn == RETRIED:
            patience.on_retry(Retry(attempt=1, error="busy", wait_s=0.5))
        if turn == OVERFLOWING and not self._refused and not any("too long" in message.text for message in messages):
            self._refused = True
            raise ContextOverflowError("too long")
        note(self._path / "asked", {"turn": turn, "messages": [message.model_dump() for message in messages]})
        self._bomb.pass_by()
        self._given += 1
        return SCRIPT[turn - 1]


class Tools(ScriptedTools):
    """Notes what is carried out where no kill can undo it."""

    def __init__(self, path: Path, bomb: Bomb) -> None:
        super().__init__(speedups=SPEEDUPS)
        self._path, self._bomb = path, bomb

    def call(self, name: str, arguments: str) -> ToolReply:
        self._bomb.pass_by()
        note(self._path / "called", [name, arguments])
        reply = super().call(name, arguments)
        self._bomb.pass_by()
        return reply


class TornFile:
    """A transcript's file that writes in two halves, with a boundary between them and before them."""

    def __init__(self, file: BinaryIO, bomb: Bomb) -> None:
        self._file, self._bomb = file, bomb
        self.fileno, self.seek, self.read, self.close = file.fileno, file.seek, file.read, file.close

    def write(self, data: memoryview) -> int:
        """Write half of what is left, or the rest where that is short."""
        self._bomb.pass_by()
        return self._file.write(data[: len(data) // 2] if len(data) > 40 else data)


def note(path: Path, value: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(value) + "\n")


def arm(bomb: Bomb) -> None:
    """Put boundaries where transcripts and candidates land on the disk; a kill loses nothing that was written."""
    opened: Callable[[Path], BinaryIO] = runs.log._open
    replaced = Path.replace

    def replace(path: Path, target: Path) -> Path:
        bomb.pass_by()
        return replaced(path, target)

    runs.log._open = lambda path: TornFile(opened(path), bomb)  # type: ignore[assignment, return-value]
    Path.replace = replace  # type: ignore[assignment, method-assign]
    os.fsync = lambda _: bomb.pass_by()  # type: ignore[assignment]


def work(path: Path, at: int | None) -> int:
    """Begin the rollout, or go on with it, and be killed at a boundary; returns how many were passed."""
    bomb = Bomb(at)
    arm(bomb)
    run = RunDirectory(path)
    run.candidates.mkdir(parents=True, exist_ok=True)
    events = run.events("rollout-1") if run.transcript("rollout-1").exists() else ()
    given = sum(isinstance(event, ModelReplied) for event in events)
    model, tools = Model(path, bomb, given), Tools(path, bomb)
    if events and can_go_on(events, LIMITS):
        resume(path, model, tools, LIMITS)
    elif not events:
        Rollout(run, beginning(LIMITS), model, tools, Budget(LIMITS, None), lambda _: None).run()
    return bomb.passed


def forked(path: Path, at: int | None) -> bool:
    """Let a process of its own work; returns whether it came to the end."""
    child = os.fork()
    if child == 0:
        try:
            passed = work(path, at)
            note(path / "passed", passed)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise AssertionError("the process ended by itself, with a fault")
    return os.WIFEXITED(status)


def story(path: Path) -> list[object]:
    """What a transcript tells, without what a kill may leave in it: times, retries, resumptions."""
    skipped = ("retry", "resumed", "budget")
    blank = {"sequence": 0, "seconds": 0.0, "time": None}
    events = RunDirectory(path).events("rollout-1")
    return [event.model_dump(mode="json") | blank for event in events if event.event not in skipped]


def check(path: Path, expected: list[object], told: dict[int, object], kills: int) -> None:
    """Raise AssertionError unless a rollout that was killed and resumed is as good as one that was not."""
    events: Sequence[Event] = RunDirectory(path).events("rollout-1")
    assert story(path) == expected, "the transcript tells another story"
    assert [event.sequence for event in events] == list(range(len(events)))
    results = [event.call_id for event in events if isinstance(event, ToolReturned)]
    assert len(results) == len(set(results)), "a call has two results"
    assert spending_of(events).turns == len(SCRIPT)
    asked = [json.loads(line) for line in (path / "asked").read_text().splitlines()]
    assert all(query["messages"] == told[query["turn"]] for query in asked), "the model saw another conversation"
    assert len(asked) <= len(SCRIPT) + kills, "a reply was paid for twice"
    called = (path / "called").read_text().splitlines()
    assert len(called) <= sum(event.executed for event in events if isinstance(event, ToolReturned)) + kills
    assert sum(isinstance(event, Resumed) for event in events) <= kills


def main(folder: Path) -> None:
    whole = folder / "whole"
    assert forked(whole, None)
    expected = story(whole)
    told = {query["turn"]: query["messages"] for query in map(json.loads, (whole / "asked").read_text().splitlines())}
    boundaries = int((whole / "passed").read_text())
    plans: list[tuple[int, ...]] = [(at,) for at in range(1, boundaries + 1)]
    plans += [(at, again) for at in range(1, boundaries + 1, 15) for again in (1, 2, 4)]
    plans += [(every,) * boundaries for every in (19, 31)]
    # Each process takes every second plan: one waits for its own children most of the time.
    with get_context("fork").Pool(PROCESSES) as pool:
        carried_out = pool.starmap(
            carry_out, [(folder / f"killed-{n}", plans[n::PROCESSES], expected, told) for n in range(PROCESSES)]
        )
    kills = sum(killed for killed, _ in carried_out)
    failures = [failure for _, failed in carried_out for failure in failed]
    print(json.dumps({"boundaries": boundaries, "kills": kills, "failures": failures}))


def carry_out(
    path: Path, plans: Sequence[tuple[int, ...]], expected: list[object], told: dict[int, object]
) -> tuple[int, list[str]]:
    """Kill a rollout as each plan says, in the same folder; returns how many kills there were, and what went wrong."""
    failures: list[str] = []
    kills = 0
    for plan in plans:
        shutil.rmtree(path, ignore_errors=True)
        times = 0
        for at in (*plan, None):
            if forked(path, at):
                break
            times += 1
        kills += times
        try:
            check(path, expected, told, times)
        except Exception as error:
            failures.append(f"killed at {plan[:3]}: {type(error).__name__}: {error}"[:500])
    return kills, failures


if __name__ == "__main__":
    main(Path(sys.argv[1]))
