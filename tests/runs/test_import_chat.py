"""Chat messages become turns; what has no place of its own is kept as it stands."""

import json
from pathlib import Path

import pytest
from foreign_files import CHAT, KERNEL, SECOND, imported

from runs.events import Imported, ModelReplied, RolloutStarted, ToolReturned
from runs.importing.chat import read_chat
from runs.importing.document import ForeignFormatError
from runs.importing.draft import Draft
from tools.candidate import Candidate
from tools.results import Foreign


def draft_of(value: object) -> Draft:
    (draft,) = read_chat(json.dumps(value))
    return draft


def test_messages_become_events_in_order(tmp_path: Path) -> None:
    events = imported(tmp_path, json.dumps(CHAT)).events("rollout-1")
    assert [event.event for event in events] == [
        "rollout_started", "model_reply", "tool_result", "tool_result", "imported", "model_reply", "ended",
    ]  # fmt: skip
    assert [event.sequence for event in events] == list(range(7))
    assert [event.turn for event in events] == [0, 1, 1, 1, 1, 2, 2]
    started, reply, written, ran, said, last, _ = events
    assert isinstance(started, RolloutStarted)
    assert (started.system_prompt, started.opening) == ("You write kernels.", "Begin.")
    assert isinstance(reply, ModelReplied) and isinstance(last, ModelReplied)
    assert (reply.reasoning, last.reasoning, last.text) == ("I think of shared memory.", "", "Done.")
    assert reply.text == f"Here:\n```python\n{SECOND}```\n"
    assert [(call.id, call.name) for call in reply.tool_calls] == [("a", "write"), ("b", "run")]
    assert reply.tool_calls[1].arguments == "{broken"
    assert isinstance(written, ToolReturned) and isinstance(ran, ToolReturned)
    assert (written.call_id, written.tool, written.reply.text) == ("a", "write", "written")
    assert (ran.call_id, ran.tool, ran.reply.text) == ("b", "run", "not JSON")
    assert isinstance(said, Imported)
    assert (said.role, said.text, said.raw) == ("user", "Go on.", {"role": "user", "content": "Go on."})


def test_unknown_parts_are_kept(tmp_path: Path) -> None:
    _, reply, written, ran, *_ = imported(tmp_path, json.dumps(CHAT)).events("rollout-1")
    assert isinstance(reply, ModelReplied) and reply.raw == CHAT[2]
    assert isinstance(written, ToolReturned) and written.reply.result == Foreign(raw={"elapsed": 3})
    assert isinstance(ran, ToolReturned)
    assert ran.reply.result == Foreign(raw={"content": [{"type": "text", "text": "not JSON"}]})


def test_results_are_tied_to_the_kernels_of_their_calls(tmp_path: Path) -> None:
    run = imported(tmp_path, json.dumps(CHAT))
    _, _, written, ran, *_ = run.events("rollout-1")
    assert isinstance(written, ToolReturned) and written.reply.candidate == Candidate(KERNEL).id
    assert isinstance(ran, ToolReturned) and ran.reply.candidate is None
    texts = {path.stem: path.read_text() for path in run.candidates.iterdir()}
    assert texts == {Candidate(KERNEL).id: KERNEL, Candidate(SECOND).id: SECOND}


def test_what_stands_beside_the_messages() -> None:
    tools = [{"type": "function", "function": {"name": "run"}}]
    draft = draft_of({"messages": CHAT, "model": "m", "tools": tools, "task": "causal_conv", "reward": {"speedup": 9}})
    assert (draft.model, draft.task, draft.tools) == ("m", "causal_conv", tuple(tools))
    last = draft.events[-1]
    assert isinstance(last, Imported)
    assert (last.role, last.text, last.raw) == ("", "", {"reward": {"speedup": 9}})


def test_beside_the_messages_things_of_another_kind_are_kept_too() -> None:
    draft = draft_of({"messages": CHAT, "model": 5, "tools": "none"})
    assert (draft.model, draft.tools) == ("unknown", ())
    last = draft.events[-1]
    assert isinstance(last, Imported) and last.raw == {"model": 5, "tools": "none"}


def test_messages_that_say_more_than_their_text_stay_whole() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    told = {"role": "user", "content": [{"type": "text", "text": "See "}, image, {"type": "text", "text": "this."}]}
    named = {"role": "system", "content": "Be quick.", "name": "boss"}
    developer = {"role": "developer", "content": "Be right."}
    draft = draft_of([named, developer, told, {"role": "assistant", "content": None}])
    assert (draft.system_prompt, draft.opening) == ("", "")
    kept = [(event.role, event.text, event.raw) for event in draft.events if isinstance(event, Imported)]
    assert kept == [("system", "Be quick.", named), ("system", "Be right.", developer), ("user", "See this.", told)]


def test_answers_to_no_call_and_second_answers_are_kept_not_paired() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answers = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("a", "a", "z")]
    nameless = {"role": "tool", "content": "whose?"}
    draft = draft_of([{"role": "assistant", "content": "", "tool_calls": [call]}, *answers, nameless])
    assert [event.event for event in draft.events] == [
        "model_reply", "tool_result", "imported", "imported", "imported",
    ]  # fmt: skip
    assert [event.raw for event in draft.events if isinstance(event, Imported)] == [*answers[1:], nameless]


def test_forms_of_calls_that_servers_differ_in() -> None:
    calls = [
        {"function": {"name": "f", "arguments": {"x": [1]}}},
        {"id": None, "function": {"name": "g"}},
    ]
    (reply,) = draft_of([{"role": "assistant", "tool_calls": calls, "reasoning": "Hm."}]).events
    assert isinstance(reply, ModelReplied)
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [("f", {"x": [1]}), ("g", {})]
    assert len({call.id for call in reply.tool_calls}) == 2
    assert (reply.text, reply.reasoning) == ("", "Hm.")


def test_a_file_of_conversations_is_a_run_of_rollouts(tmp_path: Path) -> None:
    lines = [{"messages": CHAT, "model": "m"}, [{"role": "user", "content": "Second."}]]
    run = imported(tmp_path, "\n".join(map(json.dumps, lines)) + "\n\n", name="many.jsonl")
    assert run.rollouts() == ("rollout-1", "rollout-2")
    started = run.events("rollout-2")[0]
    assert isinstance(started, RolloutStarted)
    assert (started.rollout, started.opening, started.model) == ("rollout-2", "Second.", "unknown")
    assert (run.config().rollouts, run.config().model) == (2, "unknown")


def test_one_conversation_on_one_line_is_one(tmp_path: Path) -> None:
    assert imported(tmp_path, json.dumps({"messages": CHAT}) + "\n", name="one.jsonl").rollouts() == ("rollout-1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"role": "user"}, {"content": "x"}]', r"^messages\[1\]\.role: Field required"),
        ('[{"role": "user", "content": 3}]', r"^messages\[0\]\.content"),
        ('["hello"]', r"^messages\[0\]: Input should be"),
        (
            '[{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]',
            r"^messages\[0\]\.tool_calls\.0\.function\.name: Field required",
        ),
        ("[]", "^a conversation is a list of messages"),
        ('{"message": []}', "^a conversation is a list of messages"),
        ('[\n{"role": "user",\n', r"^line 3, column 1: this is not JSON"),
        ('[{"role": "user"}]\n[{"role": }]\n', r"^line 2, column 11: this is not JSON"),
        ('[{"role": "user"}]\n\n[{"rule": 1}]\n', r"^line 3: messages\[0\]\.role: Field required"),
        ('[{"role": "user", "n": NaN}]', "^line 1 or later: a number is NaN, Infinity, beyond 1.8e308 or"),
        ('[{"role": "user", "n": -1e999}]', "^line 1 or later: a number is NaN, Infinity, beyond 1.8e308 or"),
        (f'[{{"role": "user", "n": {"9" * 5000}}}]', "^line 1 or later: a number is NaN"),
        ("[" * 100_000, "^line 1 or later: the value is nested deeper than 200 levels"),
        ("[" * 300 + "]" * 300, "^line 1 or later: the value is nested deeper than 200 levels"),
    ],
)
def test_malformed_files_are_told_with_the_place(text: str, said: str) -> None:
    with pytest.raises(ForeignFormatError, match=said):
        read_chat(text)
