"""How long processes waited for a processor, from a file in the kernel's form."""

import time
from pathlib import Path

import pytest

from tools import contention
from tools.contention import CpuPressure

LINES = "some avg10=1.53 avg60=0.87 avg300=0.70 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "cpu"
    monkeypatch.setattr(contention, "_PRESSURE", file)
    return file


def seconds_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.monotonic() + seconds
    monkeypatch.setattr(time, "monotonic", lambda: now)


def test_the_share_is_of_the_time_that_passed(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.write_text(LINES.format(some=4_000_000, full=9))
    pressure = CpuPressure()
    kernel.write_text(LINES.format(some=5_000_000, full=900_000_000))
    seconds_pass(monkeypatch, 4.0)
    assert pressure.share() == pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize("text", ["", "some avg10=0.00\n", "some total=many\n"])
def test_a_kernel_that_does_not_say(kernel: Path, text: str) -> None:
    kernel.write_text(text)
    assert CpuPressure().share() is None


def test_a_kernel_without_the_file(kernel: Path) -> None:
    assert not kernel.exists()
    assert CpuPressure().share() is None
