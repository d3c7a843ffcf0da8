"""A task is recognised only where a text leaves no doubt."""

import pytest

from runs.importing.draft import Draft, Reply
from runs.importing.task_guess import KnownTasks
from tasks.loader import find_task

KNOWN = KnownTasks()
DESCRIBED = (
    "A causal Conv1d: pad on the left. batch_size = 32, in_channels=256, out_channels = 256, kernel_size = 4, "
    "dilation = 1, seq_len = 8192."
)


def guess(opening: str = "", reasoning: str = "", task: str | None = None) -> str | None:
    draft = Draft()
    draft.task = task
    draft.user(opening, opening, plain=True)
    draft.reply(Reply(text="", reasoning=reasoning, tool_calls=(), raw={}))
    return KNOWN.guess(draft)


@pytest.mark.parametrize("name", ["causal_conv", "conv_groupnorm", "depthwise_separable", "prenorm_dilated_residual"])
def test_a_reference_in_the_prompt_names_its_task(name: str) -> None:
    assert guess(f"Make this faster:\n{find_task(name).source}\nGo.") == name


def test_a_task_that_the_file_states_is_taken_if_it_is_known() -> None:
    assert guess(DESCRIBED, task="prenorm_dilated_residual_eval") == "prenorm_dilated_residual_eval"
    assert guess(DESCRIBED, task="another") is None


def test_two_references_name_none() -> None:
    assert guess("\n".join(find_task(name).source for name in ("causal_conv", "conv_groupnorm"))) is None


def test_operations_and_sizes_name_a_task() -> None:
    assert guess(DESCRIBED) == "causal_conv"
    assert guess("Begin.", DESCRIBED) == "causal_conv"


def test_a_shape_as_a_tuple_states_its_sizes() -> None:
    text = "Depthwise Conv1d, SiLU, pointwise: x is {}, kernel_size=5, dilation=2"
    assert guess(text.format("(16, 128, 2048)")) == "depthwise_separable"
    assert guess(text.format("[16,128,2048]")) == "depthwise_separable"
    assert guess(text.format("(16, 128, 2049)")) is None
    assert guess(text.format("16 by 128 by 2048")) is None


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("dilation = 1", "dilation = 12"),
        ("seq_len = 8192", "length 8192"),
        ("batch_size = 32", "batch_size = 16"),
        ("Conv1d", "Conv2d"),
        ("pad on the left", "nothing on the left"),
    ],
)
def test_one_thing_missing_is_a_doubt(part: str, instead: str) -> None:
    assert part in DESCRIBED
    assert guess(DESCRIBED.replace(part, instead)) is None


@pytest.mark.parametrize("text", ["", "causal_conv = load_inline(name='causal_conv')", "Please do causal_conv."])
def test_a_name_in_passing_is_a_doubt(text: str) -> None:
    assert guess(text) is None


def test_sizes_in_a_later_reply_do_not_count() -> None:
    draft = Draft()
    draft.user("Begin.", "", plain=True)
    for text in ("First.", DESCRIBED):
        draft.reply(Reply(text=text, reasoning="", tool_calls=(), raw={}))
    assert KNOWN.guess(draft) is None
