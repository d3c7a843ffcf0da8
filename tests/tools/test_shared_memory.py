"""Views of the shared memory stay within it, whatever a worker says."""

import pytest
import torch

from tools.worker.messages import Slot
from tools.worker.shared_memory import aligned, dtype_of, name_of, view


def memory() -> torch.Tensor:
    return torch.zeros(1024, dtype=torch.uint8)


def test_a_view_shares_the_memory() -> None:
    whole = memory()
    view(whole, Slot("x", "float32", (2, 3), 256)).fill_(1.0)
    # 1.0 is 0x3f800000, least significant byte first.
    assert whole[256:264].tolist() == [0, 0, 128, 63, 0, 0, 128, 63]
    assert whole[:256].sum() == 0
    assert whole[256 + 24 :].sum() == 0


@pytest.mark.parametrize(
    ("shape", "offset"),
    [((256,), 0), ((), 1020), ((0, 5), 1024), ((0,), 0)],
)
def test_what_fits(shape: tuple[int, ...], offset: int) -> None:
    assert view(memory(), Slot("x", "float32", shape, offset)).shape == shape


@pytest.mark.parametrize(
    ("shape", "offset"),
    [
        ((257,), 0),
        ((1,), 1021),
        ((1,), 1024),
        ((1,), -4),
        ((-1,), 0),
        ((-1, -4), 0),
        ((2**62, 4), 0),
        ((2**40, 2**40), 0),
        ((0,), 4096),
    ],
)
def test_what_does_not(shape: tuple[int, ...], offset: int) -> None:
    with pytest.raises(ValueError, match="x does not lie within the shared memory"):
        view(memory(), Slot("x", "float32", shape, offset))


@pytest.mark.parametrize("name", ["float", "nn", "__name__", "no_such", "Tensor"])
def test_names_that_are_no_dtype(name: str) -> None:
    if name == "float":
        assert dtype_of(name) is torch.float32
        return
    with pytest.raises(ValueError, match="no such dtype"):
        dtype_of(name)


def test_names_of_dtypes_come_back() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn):
        assert dtype_of(name_of(dtype)) is dtype


def test_alignment() -> None:
    assert [aligned(offset) for offset in (0, 1, 255, 256, 257)] == [0, 256, 256, 256, 512]
