"""On a GPU, which no signal stops, the outputs of a timed call are taken while the judge's clock runs; on the host they
are read once the worker stands, and what it worked until then counts."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tools.session import Session
from tools.subject import Subject
from tools.timer import Timer

LEFT_S = 0.02


def timer_of(device: str, log: list[str], worked_on_ns: int = 0) -> Timer:
    """A timer whose GPU, once the worker says that it is done, works on for `LEFT_S`, and whose worker does as told."""

    def wait() -> None:
        log.append("waited")
        if "said done" in log:
            time.sleep(LEFT_S)

    def logged(text: str, value: Any = None) -> Any:
        def note(*_: object, **__: object) -> Any:
            log.append(text)
            return value

        return note

    session = SimpleNamespace(
        device=device,
        draws=SimpleNamespace(integer=lambda low, _: low),
        updated_state=lambda _: [],
        synchronize=wait,
        workload=SimpleNamespace(output_bytes=0),
        state_bytes=0,
        marks_ns=0,
    )
    subject = SimpleNamespace(
        worker=SimpleNamespace(resume=logged("went on"), pause=logged("stopped", worked_on_ns)),
        ready=True,
        begin_timed=logged("began", []),
        poison_timed=logged("poisoned"),
        finish_timed=logged("said done", SimpleNamespace(ns=10)),
        returned_by_last_timed=logged("took"),
    )
    fresh = SimpleNamespace(like=[], draw=lambda: None, made=lambda _: [])
    flush = SimpleNamespace(run=logged("flushed"))
    unused: Any = None
    return Timer(
        cast("Session", session), cast("Subject", subject), {}, 0, unused, cast("Any", fresh), cast("Any", flush)
    )


@pytest.mark.parametrize(
    ("device", "then"), [("cuda", ["said done", "took", "waited", "stopped"]), ("cpu", ["said done", "stopped"])]
)
def test_outputs_are_taken_before_the_worker_is_stopped(device: str, then: list[str]) -> None:
    log: list[str] = []
    timer = timer_of(device, log)
    timer.call()
    assert log[log.index("said done") :] == then


def test_what_a_gpu_still_works_on_counts() -> None:
    """A kernel that was said to be done ran while its worker was being stopped, when no clock ran."""
    timer = timer_of("cuda", [])
    timer.call()
    assert timer.wall_over_device_ns[0] >= 1e9 * LEFT_S


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_a_worker_does_after_its_answer_counts_on_the_host(device: str) -> None:
    """It answered first and worked until it was stopped, when the judge's clock had been read."""
    timer = timer_of(device, [], worked_on_ns=3_000_000_000)
    timer.call()
    assert (timer.wall_over_device_ns[0] >= 3_000_000_000) == (device == "cpu")
