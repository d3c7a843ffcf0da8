"""What candidates have a hand in cannot steer a terminal."""

import pytest

from tools.inline_request import InlineRequest
from tools.printable import printable
from tools.replies import FaultLine, parse_reply


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext, größe", "plain\n\ttext, größe"),
        ("\x1b[2Jcorrect", "\\x1b[2Jcorrect"),
        ("ends\r\nwith", "ends\nwith"),
        ("over\rwritten", "over\\rwritten"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202ekcab", "\\u202ekcab"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_fault_and_a_label_are_printable() -> None:
    reply = parse_reply({"fault": {"kind": "exception", "type": "E", "message": "\x1b]0;owned\x07", "lines": []}})
    assert isinstance(reply, FaultLine)
    assert reply.fault.message == "\\x1b]0;owned\\x07"
    assert InlineRequest(name="\x1b[2J").name == "\\x1b[2J"
