"""The list of runs: newest first, from the ends of the transcripts, and whatever is broken is named."""

import json
import os
import shutil
from pathlib import Path

import pytest
import typer
from sample_transcripts import config, events, write_run
from typer.testing import CliRunner

from runs import listing, showing
from runs.commands import register
from runs.events import EVENT, Ended, EndReason, Event
from runs.listing import RolloutLine, list_all
from runs.log import TranscriptLog
from runs.store import RunDirectory, create_run
from tasks.spec import Target


def shown(*arguments: str) -> str:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["show", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def the_rollout(root: Path) -> RolloutLine:
    ((rollout,),) = (line.rollouts for line in list_all([root]))
    return rollout


def with_rollouts(root: Path, run_id: str, *ends: tuple[EndReason, str]) -> RunDirectory:
    run = create_run(root, config(run_id).model_copy(update={"rollouts": len(ends) + 1}))
    for number, (reason, message) in enumerate(ends, start=1):
        with TranscriptLog(run.transcript(f"rollout-{number}")) as log:
            for event in events()[:-1]:
                log.append(event)
            log.append(Ended(turn=2, reason=reason, message=message))
    return run


def test_newest_first_over_all_roots(tmp_path: Path) -> None:
    for root, run_id, minute in (("local", "b", 10), ("recorded", "c", 30), ("local", "a", 20)):
        run = write_run(tmp_path / root, run_id)
        made = config(run_id)
        later = made.model_copy(update={"created": made.created.replace(minute=minute)})
        (run.path / "run.json").write_text(later.model_dump_json())
    lines = list_all([tmp_path / "local", tmp_path / "recorded"])
    assert [line.run for line in lines] == ["causal_conv/c", "causal_conv/a", "causal_conv/b"]


def test_what_a_line_says(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (line,) = list_all([tmp_path])
    assert (line.run, line.path) == ("causal_conv/20260301-120000-abc123", str(run.path))
    assert (line.target, line.model, line.planned, line.problem) == (Target.CPU, "test-model", 1, "")
    assert line.created == config().created
    assert line.rollouts == (RolloutLine(rollout="rollout-1", reason=EndReason.SUBMITTED, message="correct"),)


def test_the_lists_ends_are_those_of_the_whole_transcripts(tmp_path: Path) -> None:
    ends = [(reason, f"because of {reason}") for reason in EndReason]
    run = with_rollouts(tmp_path, "many", *ends)
    (line,) = list_all([tmp_path])
    assert [(r.reason, r.message) for r in line.rollouts] == ends
    assert [r.rollout for r in line.rollouts] == list(run.rollouts()), "the tenth after the ninth"


def test_an_end_that_is_longer_than_what_is_read_at_first(tmp_path: Path) -> None:
    message = "x" * (3 * listing._END_BYTES)
    with_rollouts(tmp_path, "long", (EndReason.INTERNAL_ERROR, message))
    assert the_rollout(tmp_path).message == message


@pytest.mark.parametrize("last", range(len(events()) - 1))
def test_a_rollout_that_was_killed_has_no_end(tmp_path: Path, last: int) -> None:
    run = create_run(tmp_path, config())
    with TranscriptLog(run.transcript("rollout-1")) as log:
        for event in events()[: last + 1]:
            log.append(event)
    assert the_rollout(tmp_path) == RolloutLine(rollout="rollout-1")


@pytest.mark.parametrize("cut", [1, 2, 30, 100])
def test_a_torn_transcript_is_read_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    run = write_run(tmp_path)
    path = run.transcript("rollout-1")
    path.write_text(path.read_text()[:-cut])
    whole: list[Event] = list(run.events("rollout-1"))
    ended = whole[-1] if isinstance(whole[-1], Ended) else None
    assert (ended is not None) == (cut == 1), "without its line break the last line is whole"
    assert the_rollout(tmp_path) == RolloutLine(
        rollout="rollout-1", reason=ended and ended.reason, message="" if ended is None else ended.message
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"not a transcript\n\n", "is not an event of a transcript"),
        (b"\xff\xfe\x00\x01" * 4000 + b"\n", "does not begin with `rollout_started`"),
        (b"", "does not begin with `rollout_started`"),
        (events()[-1].model_dump_json().encode() + b"\n", "does not begin with `rollout_started`"),
        (b'{"event": "from another program"}\n{"x": 1}\n', "is not an event of a transcript"),
        (b'{"event":"rollout_started","schema_version":7}\n{}\n', "has schema version 7"),
    ],
)
def test_a_foreign_transcript_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    write_run(tmp_path).transcript("rollout-1").write_bytes(content)
    rollout = the_rollout(tmp_path)
    assert rollout.reason is None
    assert problem in rollout.problem
    assert problem in shown(str(tmp_path))


def test_damage_at_the_end_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    with run.transcript("rollout-1").open("ab") as file:
        file.write(b'{"of": "another program"}\n')
    assert "Line 11 of" in the_rollout(tmp_path).problem


def test_half_written_and_foreign_folders_are_named(tmp_path: Path) -> None:
    whole = write_run(tmp_path, "20260301-120000-whole")
    (tmp_path / "causal_conv" / "20260302-120000-bare").mkdir()
    half = create_run(tmp_path, config("20260303-120000-half"))
    begun = create_run(tmp_path, config("20260304-120000-begun"))
    (begun.path / "rollout-1").mkdir()
    damaged = write_run(tmp_path, "20260305-120000-torn")
    (damaged.path / "run.json").write_text((damaged.path / "run.json").read_text()[:50])
    (tmp_path / "causal_conv" / "notes.txt").write_text("a file of somebody")
    (tmp_path / ".cache" / "x").mkdir(parents=True)
    lines = {line.run.split("-")[-1]: line for line in list_all([tmp_path])}
    assert set(lines) == {"whole", "bare", "half", "begun", "torn"}
    assert (lines["whole"].problem, lines["half"].problem, lines["begun"].problem) == ("", "", "")
    assert "run.json cannot be read (No such file or directory)" in lines["bare"].problem
    assert "does not have the form of a run's configuration" in lines["torn"].problem
    assert [r.reason for r in lines["torn"].rollouts] == [EndReason.SUBMITTED], "its transcript is whole"
    assert (lines["half"].rollouts, lines["whole"].path) == ((), str(whole.path))
    assert "holds no transcript.jsonl" in lines["begun"].rollouts[0].problem
    table = shown(str(tmp_path))
    assert table.count("\n") == 6
    (row,) = (row for row in table.splitlines() if half.id in row)
    assert row.endswith("cpu     test-model  0 of 1    no rollout began")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_must_not_be_read_is_named(tmp_path: Path) -> None:
    write_run(tmp_path).transcript("rollout-1").chmod(0)
    assert "Permission denied" in the_rollout(tmp_path).problem


def test_show_without_a_run_lists_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "recorded", "20260301-120000-old")
    with_rollouts(
        tmp_path / "local",
        "20260301-120000-new",
        (EndReason.SUBMITTED, "correct, 2.00x the fastest baseline"),
        (EndReason.SUBMITTED, "correct, 3.00x the fastest baseline"),
        (EndReason.TURN_LIMIT, "30 turns are spent."),
    )
    monkeypatch.setattr(showing.show_runs, "__defaults__", ((tmp_path / "local", tmp_path / "recorded"), False))
    head, *rows = shown().splitlines()
    assert head.split("  ")[0] == "created (UTC)"
    (old,) = (row.split("  ") for row in rows if "old" in row)
    assert [cell.strip() for cell in old if cell.strip()] == [
        "2026-03-01 12:00", "causal_conv/20260301-120000-old", "cpu", "test-model", "1", "submitted: correct"
    ]  # fmt: skip
    (new,) = (row for row in rows if "new" in row)
    assert new.endswith("3 of 4    2 submitted: correct; 1 turn_limit: 30 turns are spent.")
    lines = [json.loads(line) for line in shown("--json").splitlines()]
    assert {line["run"]: len(line["rollouts"]) for line in lines} == {
        "causal_conv/20260301-120000-new": 3,
        "causal_conv/20260301-120000-old": 1,
    }


def test_no_run_at_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing.show_runs, "__defaults__", ((tmp_path / "none",), False))
    assert shown() == f"There is no run in {tmp_path / 'none'}; `kernelwright run TASK` makes one.\n"
    assert shown("--json") == ""


def test_a_row_is_one_line_that_cannot_steer_the_terminal(tmp_path: Path) -> None:
    with_rollouts(tmp_path, "evil", (EndReason.MODEL_SERVER_ERROR, "the server said\n\x1b[2J502"))
    assert (
        shown(str(tmp_path))
        .splitlines()[1]
        .endswith("model_server_error: the server said \N{REPLACEMENT CHARACTER}[2J502")
    )


def test_a_copied_run_has_the_name_of_its_folder(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    shutil.copytree(run.path, tmp_path / "causal_conv" / "copy")
    assert {line.run for line in list_all([tmp_path])} == {f"causal_conv/{run.id}", "causal_conv/copy"}


def test_every_event_of_the_sample_is_read_back() -> None:
    assert [EVENT.validate_json(event.model_dump_json()) for event in events()] == events()
