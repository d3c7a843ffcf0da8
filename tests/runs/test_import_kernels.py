"""Kernels are found in calls and in code blocks, and nothing else is taken for one."""

import json

import pytest
from foreign_files import KERNEL, SECOND

from runs.events import ModelReplied, ToolCall
from runs.importing.kernels import Kernels

BLOCK = f"```python\n{KERNEL}```"


def found_in(text: str = "", reasoning: str = "", *arguments: str) -> Kernels:
    kernels = Kernels()
    calls = tuple(ToolCall(id=str(number), name="f", arguments=each) for number, each in enumerate(arguments))
    kernels.find_in(
        [
            ModelReplied(
                turn=1,
                text=text,
                reasoning=reasoning,
                tool_calls=calls,
                usage=None,
                finish_reason=None,
                raw={},
                seconds=None,
                cost_usd=None,
            )
        ]
    )
    return kernels


def texts(kernels: Kernels) -> list[str]:
    return [candidate.text for candidate in kernels.candidates.values()]


@pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        f"before\n\n{BLOCK}\nafter",
        f"```\n{KERNEL}```",
        f"```py\n{KERNEL}```",
        f"```cuda\n__global__ void f() {{}}\n```\nand\n{BLOCK}",
        f"```python\nclass ModelNew: ...[ omitted 12 characters ]... and so on:\n{BLOCK}",
        f"{BLOCK}\n{BLOCK}",
    ],
)
def test_code_blocks_that_define_model_new(text: str) -> None:
    assert texts(found_in(text)) == [KERNEL]
    assert texts(found_in("", text)) == [KERNEL]


@pytest.mark.parametrize(
    "text",
    [
        "",
        KERNEL,
        "```python\nclass Model:\n    pass\n```",
        "```python\nclass ModelNewer:\n    pass\n```",
        "the class ModelNew",
    ],
)
def test_other_text_is_no_kernel(text: str) -> None:
    kernels = found_in(text)
    assert (texts(kernels), kernels.damaged) == ([], 0)


@pytest.mark.parametrize(
    "text",
    [
        "```python import torch class ModelNew(nn.Module): def forward(self, x): return x ``` so",
        "```python\nclass ModelNew:\ndef forward(self):\npass\n```",
    ],
)
def test_blocks_without_their_line_breaks_are_counted(text: str) -> None:
    kernels = found_in(text)
    assert (texts(kernels), kernels.damaged) == ([], 1)


def test_arguments_are_searched_wherever_text_is() -> None:
    nested = json.dumps({"edits": [{"path": "a.py", "text": KERNEL}], "more": [[SECOND], 3, None]})
    assert sorted(texts(found_in("", "", nested))) == sorted([KERNEL, SECOND])


@pytest.mark.parametrize("arguments", ["", "{", '"text"', "null", '{"path": "class ModelNewer"}', "[" * 100_000])
def test_arguments_without_kernels(arguments: str) -> None:
    assert texts(found_in("", "", arguments)) == []


def test_what_a_call_holds_is_a_candidate_even_if_it_is_no_python() -> None:
    """An attempt that does not compile is an attempt; `score` says what is wrong with it."""
    broken = "class ModelNew(:\n"
    kernels = found_in("", "", json.dumps({"kernel_code": broken}))
    assert (texts(kernels), kernels.damaged) == ([broken], 0)
