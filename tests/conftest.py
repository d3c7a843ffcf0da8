"""Skips at collection what this machine cannot run, and says what it lacks."""

import importlib.util
import os
from collections.abc import Sequence

import pytest

from tools.toolchain import find_cuda_home

# As the command line has it, before anything imports PyTorch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the tests whose marker names something that is missing here."""
    for marker, lacks in (("gpu", _lacks_gpu), ("nvcc", _lacks_nvcc), ("ray", _lacks_ray)):
        marked = [item for item in items if item.get_closest_marker(marker) is not None]
        reason = lacks() if marked else None
        if reason is not None:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _lacks_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "needs an NVIDIA GPU that PyTorch can use"


def _lacks_nvcc() -> str | None:
    return None if find_cuda_home() is not None else "needs the CUDA toolkit: nvcc and the runtime's headers"


def _lacks_ray() -> str | None:
    return None if importlib.util.find_spec("ray") is not None else "needs Ray: pip install -e '.[ray]'"
