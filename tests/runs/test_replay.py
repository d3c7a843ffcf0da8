"""Tests of replaying recorded tool calls."""

import json

import pytest
from sample_transcripts import BROKEN, GOOD, built, evaluation, events, reply_of, syntax_error

from runs.events import Event, ToolReturned
from runs.replay import replay_calls
from tasks.errors import RunFormatError
from tools.profile_results import Profiled
from tools.results import Fault, ToolReply
from tools.text_results import GuideRead
from tools.verdict import Verdict


class Machine:
    """Tools on a machine where the good candidate crashes when it is submitted, if told so."""

    def __init__(self, crashing: bool) -> None:
        self.calls: list[tuple[str, str]] = []
        self._crashing = crashing

    def definitions(self) -> list[dict[str, object]]:
        return []

    def remember(self, text: str) -> None:
        raise AssertionError(f"replay does not go on with {text!r}")

    def candidate_text(self, candidate_id: str) -> str:
        return {BROKEN.id: BROKEN.text, GOOD.id: GOOD.text}[candidate_id]

    def call(self, name: str, arguments: str) -> ToolReply:
        self.calls.append((name, arguments))
        if name == "compile_kernel":
            good = json.loads(arguments)["kernel_code"] == GOOD.text
            return reply_of(built(), GOOD) if good else reply_of(syntax_error(), BROKEN)
        if self._crashing:
            crash = Fault(stage="verify", verdict=Verdict.CRASHED, message="signal 11", candidate=GOOD.id)
            return reply_of(crash, GOOD, ends=True)
        return reply_of(evaluation(), GOOD, ends=True)


def test_calls_are_carried_out_again_in_order_with_their_arguments() -> None:
    machine = Machine(crashing=False)
    replayed = list(replay_calls(events(), machine))
    assert machine.calls == [
        ("compile_kernel", json.dumps({"kernel_code": BROKEN.text})),
        ("compile_kernel", json.dumps({"kernel_code": GOOD.text})),
        ("submit", "{}"),
    ]
    assert [call.agrees for call in replayed] == [True, True, True]
    assert replayed[2].replayed.speedup == 2.0


def test_another_verdict_is_laid_beside_the_recorded_one() -> None:
    last = list(replay_calls(events(), Machine(crashing=True)))[-1]
    assert (last.recorded.verdict, last.replayed.verdict, last.agrees) == ("correct", "crashed", False)


def test_calls_that_were_not_carried_out_are_not_replayed() -> None:
    recorded: list[Event] = [
        event.model_copy(update={"executed": False}) if isinstance(event, ToolReturned) else event for event in events()
    ]
    assert list(replay_calls(recorded, Machine(crashing=False))) == []


def test_what_only_told_something_is_not_replayed() -> None:
    told = ToolReply(text="guides:", result=GuideRead())
    recorded: list[Event] = [
        event.model_copy(update={"reply": told}) if isinstance(event, ToolReturned) else event for event in events()
    ]
    assert list(replay_calls(recorded, Machine(crashing=False))) == []


def test_a_profile_agrees_with_a_profile_whatever_its_times() -> None:
    def profile(call_ns: float) -> ToolReply:
        return reply_of(
            Profiled(
                candidate=GOOD.id,
                shape="N=1",
                calls=1,
                call_ns=call_ns,
                byte_count=1,
                flop_count=1,
                peak_bytes_per_s=None,
                peak_flops_per_s=None,
                floor_ns=None,
            ),
            GOOD,
        )

    class Profiler(Machine):
        def call(self, name: str, arguments: str) -> ToolReply:
            self.calls.append((name, arguments))
            return profile(2000.0)

    recorded: list[Event] = [
        event.model_copy(update={"reply": profile(1000.0)}) if isinstance(event, ToolReturned) else event
        for event in events()
    ]
    replayed = list(replay_calls(recorded, Profiler(crashing=False)))
    assert [(call.recorded.verdict, call.replayed.verdict) for call in replayed] == [("profiled", "profiled")] * 3
    assert [(call.recorded.median_ns, call.replayed.median_ns) for call in replayed] == [(1000.0, 2000.0)] * 3


def test_result_without_its_call_is_an_error() -> None:
    recorded = [event for event in events() if event.event != "model_reply"]
    with pytest.raises(RunFormatError, match="'a'"):
        list(replay_calls(recorded, Machine(crashing=False)))
