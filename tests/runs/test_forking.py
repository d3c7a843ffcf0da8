"""Tests of what a fork takes over."""

from pathlib import Path

import pytest
from sample_transcripts import BROKEN, GOOD, config, events, write_run

from runs.events import RolloutStarted
from runs.forking import begin_fork, history_up_to
from runs.origin import Origin
from runs.store import RunDirectory, create_run
from runs.strategy_name import StrategyName
from tasks.errors import RunFormatError, UsageError
from tools.candidate import Candidate

PARENT = Candidate("# a parent, which the opening shows\n")


def source_and_fork(tmp_path: Path) -> tuple[RunDirectory, RunDirectory]:
    source = write_run(tmp_path)
    source.save_candidate(BROKEN.id, BROKEN.text)
    return source, create_run(tmp_path, config("20260302-120000-abc123"))


def beginning(parents: tuple[str, ...] = ()) -> RolloutStarted:
    first = events()[0]
    assert isinstance(first, RolloutStarted)
    return first.model_copy(update={"origin": Origin(strategy=StrategyName.REFINE, parents=parents)})


def test_what_was_spent_and_how_it_ended_stays_behind() -> None:
    history = history_up_to(events(), 1)
    assert [event.event for event in history] == ["model_reply", "tool_result"]
    assert all(event.copied for event in history)
    assert [event.time for event in history] == [event.time for event in events()[1:3]]


def test_fork_holds_the_candidates_of_its_history_and_of_its_opening(tmp_path: Path) -> None:
    source, fork = source_and_fork(tmp_path)
    source.save_candidate(PARENT.id, PARENT.text)
    source.save_candidate(GOOD.id, GOOD.text)
    begin_fork(fork, source, beginning((PARENT.id,)), history_up_to(events(), 1))
    assert sorted(path.stem for path in fork.candidates.iterdir()) == sorted((BROKEN.id, PARENT.id))
    read = fork.events("rollout-1")
    assert [(event.sequence, event.copied) for event in read] == [(0, False), (1, True), (2, True)]


def test_fork_whose_candidate_is_gone_has_no_transcript(tmp_path: Path) -> None:
    source, fork = source_and_fork(tmp_path)
    with pytest.raises(RunFormatError, match=f"{PARENT.id}.py cannot be read"):
        begin_fork(fork, source, beginning((PARENT.id,)), history_up_to(events(), 1))
    assert fork.rollouts() == ()


def test_fork_is_begun_once(tmp_path: Path) -> None:
    source, fork = source_and_fork(tmp_path)
    begin_fork(fork, source, beginning(), history_up_to(events(), 1))
    with pytest.raises(UsageError, match="never written over"):
        begin_fork(fork, source, beginning(), history_up_to(events(), 1))
