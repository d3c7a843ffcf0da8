"""The tools as a model calls them: what is refused, and one candidate from compiling to submission."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from judging import CONVOLUTION, LONG_INPUTS, candidate_of, task_of

from tasks.spec import Target
from tools.judge import Judge
from tools.results import Evaluation, Refused, ToolReply
from tools.server_process import Processes
from tools.toolbox import Toolbox
from tools.verdict import Verdict

pytestmark = pytest.mark.usefixtures("small_caches")

CANDIDATE = candidate_of(CONVOLUTION)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Iterator[Judge]:
    task = task_of(tmp_path_factory.mktemp("toolbox"), CONVOLUTION, LONG_INPUTS)
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        yield judge


@pytest.fixture
def toolbox(judge: Judge) -> Toolbox:
    return Toolbox(judge)


def compiled(toolbox: Toolbox, text: str) -> ToolReply:
    return toolbox.call("compile_kernel", json.dumps({"kernel_code": text}))


def refusal(reply: ToolReply) -> str:
    assert isinstance(reply.result, Refused)
    assert reply.text == reply.result.message
    assert reply.candidate is None
    assert not reply.ends_rollout
    return reply.text


def test_definitions_are_those_of_chat_completions(toolbox: Toolbox) -> None:
    definitions: list[dict[str, Any]] = json.loads(json.dumps(toolbox.definitions()))
    names = ["compile_kernel", "verify", "benchmark", "profile", "sanitize", "disassemble", "submit"]
    assert [item["function"]["name"] for item in definitions] == names
    for item in definitions:
        assert set(item) == {"type", "function"}
        assert item["type"] == "function"
        assert set(item["function"]) == {"name", "description", "parameters"}
        assert len(item["function"]["description"]) > 40
        parameters = item["function"]["parameters"]
        assert parameters["type"] == "object"
        assert parameters["additionalProperties"] is False
        assert all(field["description"] for field in parameters["properties"].values())
        assert '"title"' not in json.dumps(item)
    assert definitions[0]["function"]["parameters"]["required"] == ["kernel_code"]
    assert "required" not in definitions[1]["function"]["parameters"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "compile",
            "{}",
            "there is no tool 'compile'; the tools are compile_kernel, verify, benchmark, profile, "
            "sanitize, disassemble, submit",
        ),
        ("compile_kernel", '{"kernel_code": "import', "the arguments of compile_kernel do not fit: JSON: Invalid JSON"),
        ("compile_kernel", "", "kernel_code: Field required"),
        ("compile_kernel", "[]", "JSON: Input should be an object"),
        ("compile_kernel", "null", "do not fit"),
        ("compile_kernel", '{"kernel_code": 3}', "kernel_code: Input should be a valid string"),
        ("compile_kernel", '{"kernel_code": ""}', "kernel_code: String should have at least 1 character"),
        ("compile_kernel", '{"kernel_code": "x = 1", "fast": true}', "fast: Extra inputs are not permitted"),
        ("verify", '{"candidate": 7}', "candidate: Input should be a valid string"),
        ("verify", "", "nothing has been compiled yet; call compile_kernel first"),
        ("benchmark", "{}", "nothing has been compiled yet"),
        ("submit", '{"candidate": null}', "nothing has been compiled yet"),
        ("submit", '{"candidate": "abc"}', "no candidate with the id 'abc'; compiled so far: none"),
    ],
)
def test_calls_that_cannot_be_carried_out(toolbox: Toolbox, name: str, arguments: str, message: str) -> None:
    assert message in refusal(toolbox.call(name, arguments))


def test_an_id_may_be_shortened_but_not_ambiguous(toolbox: Toolbox) -> None:
    first = compiled(toolbox, CANDIDATE.text).candidate
    second = compiled(toolbox, CANDIDATE.text + "\n").candidate
    assert first == CANDIDATE.id
    assert second is not None
    unknown = refusal(toolbox.call("verify", '{"candidate": "zzz"}'))
    assert unknown.endswith(f"compiled so far: {first[:12]}, {second[:12]}.")
    assert "2 candidates with the id ''" in refusal(toolbox.call("verify", '{"candidate": ""}'))
    assert toolbox.call("verify", json.dumps({"candidate": first[:8]})).candidate == first
    assert toolbox.call("verify", "{}").candidate == second, "without an id, the one compiled last"


def test_one_candidate_from_compiling_to_submission(toolbox: Toolbox) -> None:
    replies = [
        compiled(toolbox, CANDIDATE.text),
        *(toolbox.call(name, "") for name in ("verify", "benchmark", "profile", "sanitize", "disassemble", "submit")),
    ]
    statuses = ["built", "verified", "timed", "profiled", "sanitized", "disassembled", "evaluated"]
    assert [reply.result.status for reply in replies] == statuses
    assert [reply.ends_rollout for reply in replies] == [False] * 6 + [True]
    for reply in replies:
        assert reply.candidate == CANDIDATE.id
        assert ToolReply.model_validate_json(reply.model_dump_json()) == reply
    evaluation = replies[-1].result
    assert isinstance(evaluation, Evaluation)
    assert evaluation.verdict is Verdict.CORRECT
    assert evaluation.sanitizer is not None, "a submission is strict"
    assert "compute-sanitizer (memcheck, racecheck, initcheck): not run, so nothing is known" in replies[-1].text
    assert toolbox.candidate_text(CANDIDATE.id) == CANDIDATE.text


def test_a_submission_that_fails_ends_the_conversation_too(toolbox: Toolbox) -> None:
    compiled(toolbox, "import torch\n")
    reply = toolbox.call("submit", "")
    assert reply.ends_rollout
    assert reply.text.startswith("submitted: contract_error\n")


def test_a_candidate_that_was_never_seen_has_no_text(toolbox: Toolbox) -> None:
    with pytest.raises(KeyError):
        toolbox.candidate_text("0" * 64)
