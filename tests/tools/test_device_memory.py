"""A handle of GPU memory is the worker's word, told apart from a driver that refuses."""

import pytest

from tools.worker.device_memory import OpenedMemory


@pytest.mark.parametrize("handle", ["", "00", "00" * 63, "00" * 65, "no number"])
def test_a_handle_that_no_driver_gives_is_the_workers_fault(handle: str) -> None:
    """It was ours, and had the session measure all baselines anew."""
    with pytest.raises(ValueError):
        OpenedMemory(handle, 1)
