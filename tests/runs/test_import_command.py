"""The command `import`: a whole run or none, whatever the file holds, and other commands take it like any run."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from foreign_files import ATIF, CHAT, KERNEL, SECOND, SEED, command, imported

from agent.fork_command import fork_run
from agent.resume_command import resume_run
from evals.recorded_table import report_scores
from runs.config import ImportedFrom, Limits, ModelOptions
from runs.store import RunDirectory
from tasks.errors import UsageError
from tools.candidate import Candidate


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (SEED, "seed"),
        (json.dumps(CHAT), "chat"),
        (json.dumps(CHAT, indent=2), "chat"),
        (json.dumps({"messages": CHAT}), "chat"),
        ("\n".join(json.dumps({"messages": CHAT}) for _ in range(3)), "chat"),
        (json.dumps(ATIF, indent=2), "atif"),
        ("\ufeff" + json.dumps(ATIF), "atif"),
    ],
)
def test_the_format_is_found_by_content(tmp_path: Path, content: str, found: str) -> None:
    run = imported(tmp_path, content, name="whatever.dat")
    digest = hashlib.sha256(content.encode()).hexdigest()
    assert run.config().imported_from == ImportedFrom(file="whatever.dat", sha256=digest, format=found)


def test_what_was_found_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(CHAT))
    done = command("import", file, "--out", tmp_path / "runs")
    assert "1 conversation, 2 turns, 2 tool calls, 2 candidates" in done.output
    assert "import it again with --task NAME" in done.output
    assert "kernelwright score TASK " in done.output


def test_code_that_lost_its_form_is_counted_not_repaired(tmp_path: Path) -> None:
    file = tmp_path / "seed.txt"
    file.write_text(SEED.replace("    pass", "pass"))
    done = command("import", file, "--out", tmp_path / "runs")
    assert "1 candidate, 1 code block with ModelNew, left in the transcript only" in done.output


def test_a_task_that_is_named_is_taken(tmp_path: Path) -> None:
    config = imported(tmp_path, SEED, "--task", "conv_groupnorm").config()
    assert (config.task, config.task_argument) == ("conv_groupnorm", "conv_groupnorm")


def test_a_task_that_is_not_there_is_bad_usage(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(SEED)
    for name in ("casual_conv", "../../etc"):
        done = command("import", file, "--task", name, "--out", tmp_path / "runs")
        assert isinstance(done.exception, UsageError)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe", b"[", b'{"schema_version": "ATIF-v1.7"}', b"reasoned"])
def test_what_cannot_be_imported_leaves_nothing_behind(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    done = command("import", file, "--out", tmp_path / "runs")
    assert isinstance(done.exception, UsageError)
    assert str(file) in str(done.exception) and "othing was" in str(done.exception)
    assert not (tmp_path / "runs").exists()


def test_a_format_that_was_named_is_not_guessed(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(ATIF))
    done = command("import", file, "--format", "seed", "--out", tmp_path / "runs")
    assert "line 1: the seed format begins with a line `reasoning`" in str(done.exception)


def test_an_import_that_fails_while_writing_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDirectory, "save_candidate", full)
    file = tmp_path / "a.txt"
    file.write_text(SEED)
    done = command("import", file, "--out", tmp_path / "runs")
    assert isinstance(done.exception, UsageError)
    assert "No space left on device" in str(done.exception) and "nothing was imported" in str(done.exception)
    assert list((tmp_path / "runs").iterdir()) == []


def test_names_in_a_file_reach_nothing_outside_of_the_run(tmp_path: Path) -> None:
    evil = "../../../evil"
    call = {"id": evil, "function": {"name": evil, "arguments": json.dumps({evil: KERNEL})}}
    messages = [{"role": evil, "content": ""}, {"role": "assistant", "tool_calls": [call]}]
    value = {"messages": messages, "task": evil, "model": evil, "rollout": evil, "run": evil}
    run = imported(tmp_path, json.dumps(value), name="evil.json")
    assert run.path.relative_to(tmp_path / "runs").parent == Path("unknown")
    made = sorted(path.relative_to(run.path) for path in (tmp_path / "runs").rglob("*") if path.is_file())
    expected = [f"candidates/{Candidate(KERNEL).id}.py", "rollout-1/transcript.jsonl", "run.json"]
    assert [str(path) for path in made] == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.json", "runs"]


def test_halves_of_surrogate_pairs_do_not_stop_an_import(tmp_path: Path) -> None:
    value = {"model": "m\ud800", "x\ud800": 1, "messages": [{"role": "user", "content": "a\udfff"}]}
    run = imported(tmp_path, json.dumps(value))
    assert run.config().model == "m?"
    assert command("show", run.path).exit_code == 0


def test_a_name_that_is_not_utf8_does_not_either(tmp_path: Path) -> None:
    run = imported(tmp_path, SEED, name=os.fsdecode(b"a\xff.txt"))
    origin = run.config().imported_from
    assert origin is not None and origin.file == "a?.txt"


@pytest.mark.parametrize("content", [SEED, json.dumps(CHAT), json.dumps(ATIF)])
def test_other_commands_take_an_imported_run(tmp_path: Path, content: str) -> None:
    run = imported(tmp_path, content)
    listed = command("show", tmp_path / "runs")
    assert listed.exit_code == 0 and f"unknown/{run.id}" in listed.output
    shown = command("show", run.path)
    assert shown.exit_code == 0, shown.exception
    assert "tokens, cost and time not all known" in shown.output
    as_json = command("show", run.path, "--json")
    assert as_json.exit_code == 0
    kinds = [json.loads(line)["event"] for line in as_json.output.splitlines()]
    assert (kinds[0], kinds[1], kinds[-2:]) == ("run", "rollout_started", ["ended", "summary"])
    assert all(json.loads(line) for line in command("show", tmp_path / "runs", "--json").output.splitlines())


def test_imported_words_are_shown_where_they_stood(tmp_path: Path) -> None:
    shown = command("show", imported(tmp_path, json.dumps(CHAT)).path).output
    places = [shown.index(words) for words in ("[imported: user]\nGo on.", "turn 2", "Done.")]
    assert places == sorted(places)
    assert "turn 1  write  " in shown and "  foreign" in shown


def test_an_imported_run_is_not_replayed(tmp_path: Path) -> None:
    done = command("replay", imported(tmp_path, SEED).path)
    assert isinstance(done.exception, UsageError)
    assert "was imported" in str(done.exception) and "kernelwright score" in str(done.exception)


def test_an_imported_run_is_neither_resumed_nor_forked(tmp_path: Path) -> None:
    run = imported(tmp_path, SEED)
    with pytest.raises(UsageError, match="was imported, so there is nothing of ours to go on with"):
        resume_run(str(run.path), base_url=None, options=ModelOptions(), limits=Limits(), budget=Limits(), require=None)
    with pytest.raises(UsageError, match="was imported, so there is nothing of ours to go on with"):
        fork_run(
            str(run.path),
            1,
            model="another",
            base_url=None,
            options=ModelOptions(),
            limits=Limits(),
            budget=Limits(),
            out=tmp_path / "forks",
            note=None,
            require=None,
        )
    assert not (tmp_path / "forks").exists()


def test_claims_of_a_file_are_no_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = imported(tmp_path, json.dumps({"messages": CHAT, "reward": {"verdict": "correct", "speedup": 99.0}}))
    with pytest.raises(UsageError, match=r"no rollout of .* can be scored"):
        report_scores([str(run.path)], as_json=False)
    assert f"the run {run.id} was imported, and nothing in it was judged here" in capsys.readouterr().err


def test_a_file_of_many_megabytes_is_read_whole(tmp_path: Path) -> None:
    turns = 100
    kernels = [f"{SECOND}# {number}\n" + "# padding\n" * 5000 for number in range(turns)]
    messages: list[dict[str, object]] = []
    for kernel in kernels:
        arguments = json.dumps({"kernel_code": kernel})
        messages.append(
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}
        )
        messages.append({"role": "tool", "tool_call_id": "a", "content": "ok"})
    run = imported(tmp_path, json.dumps(messages))
    assert len(run.events("rollout-1")) == 2 * turns + 2
    assert {path.stem for path in run.candidates.iterdir()} == {Candidate(kernel).id for kernel in kernels}


def test_a_file_that_never_ends_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = command("import", pipe, "--out", tmp_path / "runs")
    assert isinstance(done.exception, UsageError)
    assert "is no regular file" in str(done.exception)
