"""ATIF trajectories become turns; all versions 1.x, and nothing of them is lost."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from foreign_files import ATIF, KERNEL, imported

from runs.events import Imported, ModelReplied, RolloutStarted, ToolReturned, Usage
from runs.importing.atif import read_atif
from runs.importing.document import ForeignFormatError
from runs.importing.draft import Draft
from runs.summary import summarize
from tools.candidate import Candidate
from tools.results import Foreign


def trajectory(*steps: object, **root: object) -> str:
    agent = {"name": "a", "version": "1"}
    return json.dumps({"schema_version": "ATIF-v1.7", "agent": agent, "steps": steps, **root})


def draft_of(*steps: object, **root: object) -> Draft:
    (draft,) = read_atif(trajectory(*steps, **root))
    return draft


def test_steps_become_events(tmp_path: Path) -> None:
    run = imported(tmp_path, json.dumps(ATIF))
    events = run.events("rollout-1")
    assert [event.event for event in events] == [
        "rollout_started", "model_reply", "tool_result", "imported", "model_reply", "imported", "ended",
    ]  # fmt: skip
    started, reply, result, loose, last, rest, _ = events
    assert isinstance(started, RolloutStarted)
    assert (started.system_prompt, started.opening, started.model) == ("You write kernels.", "Begin.", "m1")
    assert isinstance(reply, ModelReplied) and isinstance(last, ModelReplied)
    assert (reply.text, reply.reasoning, last.text) == ("Trying.", "I think.", "Done.")
    assert reply.time == datetime(2026, 3, 1, 12, 0, 5, 250_000, tzinfo=UTC)
    assert last.time is None
    assert json.loads(reply.tool_calls[0].arguments) == {"text": KERNEL}
    assert isinstance(result, ToolReturned)
    assert (result.call_id, result.tool, result.reply.text) == ("c1", "write", "written")
    assert result.reply.result == Foreign(raw={"extra": {"took": 2}})
    assert result.reply.candidate == Candidate(KERNEL).id
    assert isinstance(loose, Imported) and loose.text == "the disk is nearly full"
    assert isinstance(rest, Imported)
    assert rest.raw == {name: value for name, value in ATIF.items() if name != "steps"}


def test_counts_include_what_was_cached_and_are_absent_where_not_said(tmp_path: Path) -> None:
    _, reply, _, _, last, *_ = events = imported(tmp_path, json.dumps(ATIF)).events("rollout-1")
    assert isinstance(reply, ModelReplied) and isinstance(last, ModelReplied)
    assert reply.usage == Usage(input_tokens=100, output_tokens=20, cached_tokens=60)
    assert (reply.cost_usd, reply.seconds) == (0.5, None)
    assert (last.usage, last.cost_usd) == (None, None)
    assert summarize(events).spent is None


@pytest.mark.parametrize("metrics", [{"prompt_tokens": 5}, {"completion_tokens": 5}, {"cost_usd": 1}, {}])
def test_half_a_count_is_none(metrics: dict[str, object]) -> None:
    reply = draft_of({"step_id": 1, "source": "agent", "message": "", "metrics": metrics}).events[0]
    assert isinstance(reply, ModelReplied)
    assert reply.usage is None
    assert reply.raw["metrics"] == metrics


def test_a_time_without_a_zone_is_no_time() -> None:
    step = {"step_id": 1, "source": "agent", "message": "", "timestamp": "2026-03-01T12:00:00"}
    reply = draft_of(step).events[0]
    assert isinstance(reply, ModelReplied)
    assert (reply.time, reply.raw["timestamp"]) == (None, "2026-03-01T12:00:00")


def test_content_in_parts_stays_whole() -> None:
    image = {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}
    parts = [{"type": "text", "text": "See"}, image]
    user = {"step_id": 1, "source": "user", "message": parts}
    call = {"tool_call_id": "c", "function_name": "f", "arguments": {}}
    agent = {
        "step_id": 2,
        "source": "agent",
        "message": parts,
        "tool_calls": [call],
        "observation": {"results": [{"source_call_id": "c", "content": parts}]},
    }
    said, reply, result, _ = draft_of(user, agent).events
    assert isinstance(said, Imported) and (said.text, said.raw) == ("See", user)
    assert isinstance(reply, ModelReplied) and (reply.text, reply.raw["message"]) == ("See", parts)
    assert isinstance(result, ToolReturned)
    assert (result.reply.text, result.reply.result) == ("See", Foreign(raw={"content": parts}))


@pytest.mark.parametrize("version", ["ATIF-v1.0", "ATIF-v1.4", "ATIF-v1.8", "ATIF-v1.12"])
def test_every_version_one_is_read(version: str) -> None:
    step = {"step_id": 1, "source": "agent", "message": "x", "new_in_1_12": [1]}
    reply = draft_of(step, schema_version=version).events[0]
    assert isinstance(reply, ModelReplied)
    assert reply.raw == step


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (trajectory({"source": "agent", "message": "x"}, schema_version="ATIF-v2.0"), "^schema_version"),
        (trajectory(), "^steps: "),
        (trajectory({"source": "agent"}), r"^steps\.0\.message: Field required"),
        (trajectory({"source": "robot", "message": ""}), r"^steps\.0\.source: Input should be 'system', 'user' or"),
        (
            trajectory({"source": "agent", "message": "", "tool_calls": [{"tool_call_id": "a", "arguments": {}}]}),
            r"^steps\.0\.tool_calls\.0\.function_name: Field required",
        ),
        (
            trajectory({"source": "agent", "message": "", "metrics": {"prompt_tokens": "many"}}),
            r"^steps\.0\.metrics\.prompt_tokens",
        ),
        (trajectory({"source": "agent", "message": "", "timestamp": "noon"}), r"^steps\.0\.timestamp: 'noon' is not"),
        # In UTC it would be before the first year that there is, and no export could write it.
        (
            trajectory({"source": "agent", "message": "", "timestamp": "0001-01-01T00:00:00+01:00"}),
            r"^steps\.0\.timestamp: '0001-01-01T00:00:00\+01:00' is not",
        ),
        (
            trajectory({"source": "agent", "message": "", "metrics": {"prompt_tokens": -1}}),
            r"^steps\.0\.metrics\.prompt_tokens: Input should be greater than or equal to 0",
        ),
        (
            trajectory({"source": "agent", "message": "", "metrics": {"cost_usd": 1}}).replace("1}", "1e999}"),
            "^line 1 or later: a number is NaN, Infinity, beyond",
        ),
        (json.dumps({"schema_version": "ATIF-v1.7", "steps": [{}]}), "^agent: Field required"),
        ('{"schema_version": "ATIF-v1.7",\n"steps": [}', "^line 2, column 11: this is not JSON"),
    ],
)
def test_malformed_files_are_told_with_the_place(text: str, said: str) -> None:
    with pytest.raises(ForeignFormatError, match=said):
        read_atif(text)
