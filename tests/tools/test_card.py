"""What is told of a GPU, by a stand-in for NVIDIA's management library."""

import ctypes
from typing import Any, cast

import pytest

from tools.card import Card, card_in_use


class StandIn:
    """A library that tells of one GPU, whose clock a test sets."""

    def __init__(self, sm_clock_mhz: int | None) -> None:
        self.sm_clock_mhz = sm_clock_mhz

    def nvmlDeviceGetClockInfo(self, _handle: object, kind: int, value: Any) -> int:
        if self.sm_clock_mhz is None:
            return 3
        value._obj.value = {1: self.sm_clock_mhz, 2: 3201}[kind]
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: object, reasons: Any) -> int:
        reasons._obj.value = 4
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, _handle: object, count: Any, _infos: object) -> int:
        count._obj.value = 5
        return 7


def card(nvml: StandIn) -> Card:
    return Card(cast("ctypes.CDLL", nvml), ctypes.c_void_p())


def test_processes_of_our_own_are_no_others() -> None:
    state = card(StandIn(1980)).state(own_processes=3)
    assert (state.sm_clock_mhz, state.memory_clock_mhz, state.throttle_reasons) == (1980, 3201, 4)
    assert state.other_processes == 2


@pytest.mark.parametrize(
    ("clock_mhz", "warm"), [(345, False), (1755, False), (1965, True), (1980, True), (None, False)]
)
def test_a_card_is_warm_at_the_clock_that_was_noted(clock_mhz: int | None, warm: bool) -> None:
    nvml = StandIn(1980)
    noted = card(nvml)
    assert not noted.is_warm()
    noted.note_warm()
    nvml.sm_clock_mhz = clock_mhz
    assert noted.is_warm() is warm


def test_a_card_that_does_not_tell_its_clock_is_never_warm() -> None:
    silent = card(StandIn(None))
    silent.note_warm()
    assert not silent.is_warm()


def test_without_a_gpu_there_is_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.card.visible_gpus", tuple)
    assert card_in_use() is None
