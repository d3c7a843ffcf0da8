"""A handle of GPU memory is the worker's word, told apart from a driver that refuses."""

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from fake_driver import MEMORY_BYTES, OPENS, build_fake_driver

from tasks.errors import HarnessError
from tools.candidate import Candidate
from tools.replies import Done
from tools.subject import Limits, Subject
from tools.verdict import Verdict
from tools.worker import device_memory
from tools.worker.device_memory import OpenedMemory
from tools.workers import CandidateFault

GOOD, GARBAGE = f"{OPENS:02x}" + "00" * 63, "99" * 64


@pytest.mark.parametrize("handle", ["", "00", "00" * 63, "00" * 65, "no number"])
def test_a_handle_that_no_driver_gives_is_the_workers_fault(handle: str) -> None:
    """It was ours, and had the session measure all baselines anew."""
    with pytest.raises(ValueError):
        OpenedMemory(handle, 1)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the GPU's."""
    library = ctypes.CDLL(str(build_fake_driver(tmp_path) / "libcuda.so.1"))
    monkeypatch.setattr(device_memory, "_driver", lambda: library)
    monkeypatch.setattr(device_memory, "bytes_at", lambda _, size, __: torch.zeros(size, dtype=torch.uint8))


class Workers:
    """Workers that tell handles, that of a candidate and then those that have none, and which of them were ended."""

    def __init__(self, *handles: str) -> None:
        self.handles = list(handles)
        self.closed = 0

    def subject(self, **more: Any) -> Subject:
        handle = self.handles.pop(0)

        def ask(*_: object) -> Done:
            if handle == "dies":
                raise CandidateFault(Verdict.CRASHED, "cuIpcGetMemHandle answered CUresult 801")
            return Done(handle=handle)

        worker = SimpleNamespace(memory=torch.zeros(1), ask=ask, close=self._close)
        return Subject(cast("Any", worker), cast("Any", None), Candidate(""), "cuda", Limits(), **more)

    def _close(self) -> None:
        self.closed += 1

    def shares(self) -> bool:
        """What a session finds out by a worker without a candidate."""
        # The candidate's worker must be gone: it may hold all memory.
        assert self.closed == 1
        try:
            self.subject().share(MEMORY_BYTES)
        except HarnessError:
            return False
        return True


@pytest.mark.usefixtures("driver")
def test_a_handle_that_the_driver_gave_is_opened() -> None:
    workers = Workers(GOOD)
    workers.subject(shares_memory=workers.shares).share(MEMORY_BYTES)
    assert not workers.closed


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("handle", ["", "00" * 63, "no number", GARBAGE, "dies"])
def test_a_handle_of_nothing_is_the_candidates_fault_where_others_can_share(handle: str) -> None:
    """Garbage of the right length ended as `harness_error`."""
    workers = Workers(handle, GOOD)
    with pytest.raises(CandidateFault) as caught:
        workers.subject(shares_memory=workers.shares).share(MEMORY_BYTES)
    assert caught.value.verdict is (Verdict.CRASHED if handle == "dies" else Verdict.NO_RESULT)


@pytest.mark.usefixtures("driver")
def test_a_handle_that_opens_too_little_is_the_candidates_fault() -> None:
    workers = Workers(GOOD, GOOD)
    with pytest.raises(CandidateFault, match="opens less than"):
        workers.subject(shares_memory=workers.shares).share(MEMORY_BYTES + 1)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("handle", [GOOD, GARBAGE, "dies"])
def test_a_driver_that_refuses_everybody_is_no_candidates_fault(handle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUSES_TO_SHARE", "1")
    workers = Workers(handle, GOOD)
    with pytest.raises(HarnessError, match="cannot be shared with workers"):
        workers.subject(shares_memory=workers.shares).share(MEMORY_BYTES)


@pytest.mark.usefixtures("driver")
def test_workers_that_can_never_share_are_no_candidates_fault() -> None:
    """A GPU whose driver gives no handles once made every candidate crash."""
    workers = Workers("dies", "dies")
    with pytest.raises(HarnessError, match="CUresult 801"):
        workers.subject(shares_memory=workers.shares).share(MEMORY_BYTES)
