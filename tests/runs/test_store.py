"""Tests of the store: what is on disk is whole, is never written over, and tells clearly what is wrong with it."""

import errno
import json
import os
from pathlib import Path

import pytest
from sample_transcripts import GOOD, config, events, syntax_error, write_run

from runs.config import Limits, RunConfig, Spending
from runs.events import EVENT, Ended, EndReason, Resumed, ToolReturned
from runs.log import TranscriptLog
from runs.reading import read_transcript
from runs.store import check_writable, create_run
from tasks.errors import RunFormatError, StorageError, UsageError
from tools.results import Timed, ToolReply


def test_every_event_survives_the_disk(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    read = run.events("rollout-1")
    assert [event.model_copy(update={"sequence": 0}) for event in read] == events()
    assert [event.sequence for event in read] == list(range(len(events())))


def test_configuration_survives_the_disk(tmp_path: Path) -> None:
    run = create_run(tmp_path, config())
    assert run.config() == config()
    assert run.path == tmp_path / "causal_conv" / "20260301-120000-abc123"


def test_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = write_run(tmp_path).transcript("rollout-1")
    whole = path.read_bytes()
    for cut in (1, 2, 40):
        path.write_bytes(whole[:-cut])
        assert len(read_transcript(path)) == len(events()) - (cut > 1)


def test_last_line_lost_to_a_power_failure_is_left_out(tmp_path: Path) -> None:
    path = write_run(tmp_path).transcript("rollout-1")
    path.write_bytes(path.read_bytes() + b"\0\0\0\0\n")
    assert len(read_transcript(path)) == len(events())


def gone_on(path: Path, after: int) -> Resumed:
    """Goes on with a transcript that holds so many whole events."""
    history = read_transcript(path)
    assert len(history) == after
    with TranscriptLog(path, history) as log:
        return log.append(Resumed(turn=1, spent=Spending(), limits=Limits(), gap_s=2.0))


@pytest.mark.parametrize(
    "tail", [b'{"sequence":3,"tu', b"\0\0\0\0", b"\0\0\n", b"stale bytes of a disk", b'{"torn"\n{"sequence":3']
)
def test_torn_tail_stays_where_it_is_and_is_left_out_once_the_transcript_goes_on(tmp_path: Path, tail: bytes) -> None:
    path = write_run(tmp_path).transcript("rollout-1")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + tail)
    again = gone_on(path, 3)
    assert again.sequence == 3
    assert path.read_bytes().startswith(b"".join(lines[:3]) + tail)
    read = read_transcript(path)
    assert [event.sequence for event in read] == [0, 1, 2, 3]
    assert read[-1] == again


def test_whole_last_line_without_its_end_stays_an_event(tmp_path: Path) -> None:
    path = write_run(tmp_path).transcript("rollout-1")
    path.write_bytes(path.read_bytes()[:-1])
    gone_on(path, len(events()))
    assert len(read_transcript(path)) == len(events()) + 1


def test_torn_line_that_is_not_gone_on_from_is_damage(tmp_path: Path) -> None:
    path = write_run(tmp_path).transcript("rollout-1")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + b'{"sequence":3\n' + lines[3])
    with pytest.raises(RunFormatError, match="Line 4 of"):
        read_transcript(path)


def test_transcript_without_one_whole_event_may_begin_anew(tmp_path: Path) -> None:
    """Its process was killed while it wrote the first event."""
    path = tmp_path / "rollout-1" / "transcript.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"sequence":0,"turn":0,"ti')
    with TranscriptLog(path) as log:
        log.append(events()[0])
    assert [event.event for event in read_transcript(path)] == ["rollout_started"]


def test_transcript_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "rollout-1" / "transcript.jsonl"
    with TranscriptLog(path) as log:
        log.append(events()[0])
        with pytest.raises(UsageError, match="Another process is writing"):
            TranscriptLog(path, read_transcript(path))
    gone_on(path, 1)


def test_damage_in_the_middle_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = write_run(tmp_path).transcript("rollout-1")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:30] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(RunFormatError, match="Line 3 of"):
        read_transcript(path)


def test_whole_last_line_that_is_no_event_is_an_error(tmp_path: Path) -> None:
    path = write_run(tmp_path).transcript("rollout-1")
    path.write_bytes(path.read_bytes() + b'{"event":"applause","turn":3}\n')
    with pytest.raises(RunFormatError, match=f"Line {len(events()) + 1} of .*applause"):
        read_transcript(path)


def test_transcript_of_another_version_says_so(tmp_path: Path) -> None:
    path = write_run(tmp_path).transcript("rollout-1")
    first, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(first), "schema_version": 7}) + "\n" + rest)
    with pytest.raises(RunFormatError, match="schema version 7"):
        read_transcript(path)


def test_configuration_of_another_form_says_what_is_wrong(tmp_path: Path) -> None:
    run = create_run(tmp_path, config())
    (run.path / "run.json").write_text(json.dumps({**json.loads(config().model_dump_json()), "rollouts": 0}))
    with pytest.raises(RunFormatError, match="rollouts"):
        run.config()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    with pytest.raises(UsageError, match="never written over"):
        create_run(tmp_path, config())
    with pytest.raises(UsageError, match="never written over"):
        TranscriptLog(run.transcript("rollout-1"))


def test_unwritable_directory_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="--out"):
        check_writable(tmp_path / "file" / "runs")
    with pytest.raises(UsageError, match="--out"):
        create_run(tmp_path / "file", config())


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_full_disk_stops_the_log_and_nothing_follows_the_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TranscriptLog(tmp_path / "rollout-1" / "transcript.jsonl") as log:
        log.append(events()[0])

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"transcript\.jsonl can no longer .*No space left .* resume"):
            log.append(events()[1])
        assert log.failed
        monkeypatch.undo()
        with pytest.raises(StorageError, match="not written any more"):
            log.append(events()[2])


def test_candidates_are_kept_once(tmp_path: Path) -> None:
    run = create_run(tmp_path, config())
    run.save_candidate(GOOD.id, GOOD.text)
    path = run.candidates / f"{GOOD.id}.py"
    assert path.read_text() == GOOD.text
    before = path.stat().st_ino
    run.save_candidate(GOOD.id, GOOD.text)
    assert path.stat().st_ino == before
    assert [file.name for file in run.candidates.iterdir()] == [f"{GOOD.id}.py"]


def test_half_a_surrogate_pair_does_not_lose_the_event(tmp_path: Path) -> None:
    path = tmp_path / "rollout-1" / "transcript.jsonl"
    with TranscriptLog(path) as log:
        log.append(Ended(turn=1, reason=EndReason.MODEL_STOPPED, message="half \ud83d of a smile"))
    assert read_transcript(path)[0] == Ended(
        turn=1,
        reason=EndReason.MODEL_STOPPED,
        message="half ? of a smile",
        time=read_transcript(path)[0].time,
    )


def test_infinities_survive_the_disk() -> None:
    fault = syntax_error().model_copy(update={"seconds": float("inf")})
    event = ToolReturned(
        turn=1, call_id="a", tool="verify", reply=ToolReply(text="", result=fault), executed=True, seconds=0.0
    )
    again = EVENT.validate_json(event.model_dump_json())
    assert isinstance(again, ToolReturned)
    assert not isinstance(again.reply.result, Timed)
    assert again == event


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        RunConfig.model_validate_json(config().model_dump_json()[:-1] + ',"mood":"good"}')
