"""A disk that is full, or taken away, ends a rollout clearly, and what was written goes on."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scripted import ScriptedModel, ScriptedTools, call, compile_call, resume, roll_out

from agent.model import ModelReply
from runs.events import Culprit, EndReason, ToolReturned
from runs.store import RunDirectory
from tasks.errors import StorageError
from tools.results import ToolReply

SCRIPT: list[ModelReply | BaseException] = [
    ModelReply(text="One.", tool_calls=(compile_call("one"),)),
    ModelReply(text="", tool_calls=(call("submit"),)),
]


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Let this process write no file beyond a size: the kernel writes what fits, then refuses, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_ends_the_rollout_clearly_and_leaves_a_log_that_goes_on(tmp_path: Path) -> None:
    _, whole = roll_out(tmp_path / "whole", ScriptedModel(SCRIPT), ScriptedTools())
    sizes = [
        len(line) + 1 for line in RunDirectory(tmp_path / "whole").transcript("rollout-1").read_bytes().splitlines()
    ]
    path = RunDirectory(tmp_path / "full").transcript("rollout-1")
    with file_size_limit(sum(sizes[:3]) + 60), pytest.raises(StorageError) as full:
        roll_out(tmp_path / "full", ScriptedModel(SCRIPT), ScriptedTools())
    assert str(path) in str(full.value) and "kernelwright resume" in str(full.value)
    assert path.stat().st_size == sum(sizes[:3]) + 60
    assert [event.event for event in RunDirectory(tmp_path / "full").events("rollout-1")] == [
        event.event for event in whole[:3]
    ]
    ended, events = resume(tmp_path / "full", ScriptedModel(SCRIPT[1:]), ScriptedTools())
    assert ended.reason is EndReason.SUBMITTED
    assert [event.sequence for event in events] == list(range(len(events)))


def test_candidate_that_cannot_be_kept_ends_the_rollout_and_its_call_stays_open(tmp_path: Path) -> None:
    (tmp_path / "candidates").mkdir()

    class Forbidding(ScriptedTools):
        """Somebody takes the folder of candidates away while a candidate is being built."""

        def call(self, name: str, arguments: str) -> ToolReply:
            (tmp_path / "candidates").rmdir()
            (tmp_path / "candidates").write_text("in the way")
            return super().call(name, arguments)

    ended, events = roll_out(tmp_path, ScriptedModel(SCRIPT), Forbidding())
    assert (ended.reason, ended.culprit) == (EndReason.STORAGE_FAULT, Culprit.MACHINE)
    assert str(tmp_path / "candidates") in ended.message and "kernelwright resume" in ended.message
    assert not any(isinstance(event, ToolReturned) for event in events)
    (tmp_path / "candidates").unlink()
    (tmp_path / "candidates").mkdir()
    ended, _ = resume(tmp_path, ScriptedModel(SCRIPT[1:]), ScriptedTools())
    assert ended.reason is EndReason.SUBMITTED


def test_interruption_while_an_event_is_being_written_leaves_a_complete_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes its time, so that is where an interruption often comes."""
    synced = 0

    def fsync(_: int) -> None:
        nonlocal synced
        synced += 1
        if synced == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fsync)
    ended, events = roll_out(tmp_path, ScriptedModel(SCRIPT), ScriptedTools())
    assert ended.reason is EndReason.INTERRUPTED
    assert [event.event for event in events] == ["rollout_started", "model_reply", "ended"]
    tools = ScriptedTools()
    ended, _ = resume(tmp_path, ScriptedModel(SCRIPT[1:]), tools)
    assert ended.reason is EndReason.SUBMITTED
    assert [name for name, _ in tools.calls] == ["compile_kernel", "submit"]
