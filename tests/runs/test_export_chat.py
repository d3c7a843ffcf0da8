"""Rollouts as chat messages for fine-tuning, and the command `export` itself."""

import json
from pathlib import Path

import pytest
from foreign_files import CHAT, command, imported
from sample_transcripts import BROKEN, GOOD, config, events, reply_of, syntax_error, timed, write_run

from runs.events import Event, Nudged, Submitted, ToolReturned
from runs.exporting.atif import trajectory_text
from runs.exporting.chat import chat_line
from runs.log import TranscriptLog
from runs.store import create_run
from tasks.errors import UnavailableError, UsageError


def test_a_line_is_the_whole_conversation() -> None:
    line = json.loads(chat_line("the-run", events()))
    assert line["messages"] == [
        {"role": "system", "content": "You write kernels."},
        {"role": "user", "content": "Begin."},
        {
            "role": "assistant",
            "content": "Let me try.",
            "reasoning_content": "I think of shared memory.",
            "tool_calls": [_call("a", "compile_kernel", json.dumps({"kernel_code": BROKEN.text}))],
        },
        {"role": "tool", "tool_call_id": "a", "content": "the tool said fault"},
        {
            "role": "assistant",
            "content": "Repaired.",
            "tool_calls": [
                _call("b", "compile_kernel", json.dumps({"kernel_code": GOOD.text})),
                _call("c", "submit", "{}"),
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "the tool said built"},
        {"role": "tool", "tool_call_id": "c", "content": "the tool said evaluated"},
    ]
    del line["messages"]
    assert line == {
        "tools": [{"type": "function", "function": {"name": "submit"}}],
        "task": "causal_conv",
        "target": "cpu",
        "model": "test-model",
        "run": "the-run",
        "rollout": "rollout-1",
        "reward": {
            "of": "submitted",
            "verdict": "correct",
            "speedup": 2.0,
            "speedup_interval": {"low": 1.9, "high": 2.1},
        },
    }


def _call(call_id: str, name: str, arguments: str) -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_what_the_harness_said_is_part_of_the_conversation() -> None:
    nudged = [*events()[:3], Nudged(turn=1, text="Call a tool."), *events()[3:]]
    messages = json.loads(chat_line("r", nudged))["messages"]
    assert [message["role"] for message in messages[3:6]] == ["tool", "user", "assistant"]
    assert messages[4] == {"role": "user", "content": "Call a tool."}


def reward(changed: list[Event]) -> object:
    return json.loads(chat_line("r", changed))["reward"]


def test_without_a_submission_the_best_candidate_is_the_reward() -> None:
    last = events()[6]
    assert isinstance(last, ToolReturned)
    measured = last.model_copy(update={"tool": "benchmark", "reply": reply_of(timed(), GOOD)})
    found = reward([*events()[:6], measured])
    assert found == {
        "of": "best",
        "verdict": "correct",
        "speedup": 2.0,
        "speedup_interval": {"low": 1.9, "high": 2.1},
    }


def test_a_wrong_submission_has_its_verdict_and_no_speedup() -> None:
    submitted = next(event for event in events() if isinstance(event, Submitted))
    failed = submitted.evaluation.model_copy(update={"build": syntax_error(), "verify": None, "benchmark": None})
    changed = [
        event.model_copy(update={"evaluation": failed}) if isinstance(event, Submitted) else event for event in events()
    ]
    assert reward(changed) == {
        "of": "submitted",
        "verdict": "build_failed",
        "speedup": None,
        "speedup_interval": None,
    }


def test_nothing_timed_is_no_reward() -> None:
    assert reward(events()[:4]) is None


def test_a_file_cannot_claim_a_reward(tmp_path: Path) -> None:
    run = imported(tmp_path, json.dumps({"messages": CHAT, "reward": {"verdict": "correct", "speedup": 99}}))
    assert reward(list(run.events("rollout-1"))) is None


def test_imported_messages_stand_where_they_stood(tmp_path: Path) -> None:
    run = imported(tmp_path, json.dumps({"messages": CHAT, "extra": 1}))
    messages = json.loads(chat_line(run.id, run.events("rollout-1")))["messages"]
    assert [message["role"] for message in messages] == [message["role"] for message in CHAT]
    assert messages[5] == {"role": "user", "content": "Go on."}


def test_several_messages_before_the_first_reply_keep_their_order(tmp_path: Path) -> None:
    said = [{"role": role, "content": text} for role, text in (("system", "a"), ("user", "b"), ("user", "c"))]
    said += [{"role": "system", "content": "d"}, {"role": "assistant", "content": "e"}]
    run = imported(tmp_path, json.dumps(said))
    assert json.loads(chat_line(run.id, run.events("rollout-1")))["messages"] == said
    steps = json.loads(trajectory_text(run.config(), run.events("rollout-1")))["steps"]
    assert [(step["source"], step["message"]) for step in steps] == [
        ("system", "a"),
        ("user", "b"),
        ("user", "c"),
        ("system", "d"),
        ("agent", "e"),
    ]


def test_a_line_a_rollout_on_standard_output(tmp_path: Path) -> None:
    run = create_run(tmp_path, config())
    for rollout in ("rollout-1", "rollout-2"):
        with TranscriptLog(run.transcript(rollout)) as log:
            for event in events():
                log.append(event.model_copy(update={"rollout": rollout}) if event.turn == 0 else event)
    done = command("export", run.path, "--to", "chat")
    assert [json.loads(line)["rollout"] for line in done.output.splitlines()] == ["rollout-1", "rollout-2"]
    assert json.loads(command("export", run.path / "rollout-2", "--to", "chat").output)["rollout"] == "rollout-2"


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    done = command("export", write_run(tmp_path).path, "--to", "chat", "--out", tmp_path / "none" / "a.jsonl")
    assert isinstance(done.exception, UsageError)
    assert "No such file or directory" in str(done.exception)


@pytest.mark.parametrize(
    "options",
    [
        ("--to", "otlp", "--out", "x"),
        ("--to", "chat", "--endpoint", "http://x"),
        ("--to", "atif", "--with-content"),
    ],
)
def test_options_of_another_form_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = command("export", write_run(tmp_path).path, *options)
    assert isinstance(done.exception, UsageError)


def test_without_the_extra_the_command_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = command("export", write_run(tmp_path).path, "--to", "otlp", "--endpoint", "http://127.0.0.1:1")
    assert isinstance(done.exception, UnavailableError)
    assert "pip install -e '.[otel]'" in str(done.exception)


def test_an_export_never_takes_the_place_of_a_runs_own_file(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    transcript = run.transcript("rollout-1")
    before = transcript.read_bytes()
    link = tmp_path / "elsewhere.json"
    link.symlink_to(transcript)
    for out in (transcript, link, run.path / "new.json"):
        done = command("export", run.path, "--to", "chat", "--out", out)
        assert isinstance(done.exception, UsageError)
        assert "lies in the run itself" in str(done.exception)
    assert transcript.read_bytes() == before
    assert not (run.path / "new.json").exists()
