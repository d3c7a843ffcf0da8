"""Tests of splitting reasoning off a text."""

import pytest

from agent.think_tags import split_thoughts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nTaps first.\n</think>\n\nTrying.", ("Taps first.", "Trying.")),
        ("  <thinking>a</thinking>b", ("a", "b")),
        # The template opened the tag in the prompt.
        ("Taps first.\n</think>\nTrying.", ("Taps first.", "Trying.")),
        # Cut off while reasoning.
        ("<think>\nTaps fir", ("Taps fir", "")),
        # Nothing was thought, as some templates make models say.
        ("<think>\n\n</think>\n\nTrying.", ("", "Trying.")),
        # Only what the text begins with is reasoning.
        ("Trying. <think>no</think>", ("", "Trying. <think>no</think>")),
        ("for (int i = 0; i < think; ++i)", ("", "for (int i = 0; i < think; ++i)")),
        ("", ("", "")),
    ],
)
def test_thoughts_and_the_rest(text: str, expected: tuple[str, str]) -> None:
    assert split_thoughts(text) == expected
