"""Tensors as views of memory that the judge and a worker both map."""

import math
import mmap

import torch

from tools.worker.messages import Slot

ALIGNMENT = 256


def aligned(offset: int) -> int:
    """The next offset at which a tensor may start."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def dtype_of(name: str) -> torch.dtype:
    """The dtype of a name such as `float32`.

    Raises:
        ValueError: PyTorch has no such dtype.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no such dtype: {name}")
    return dtype


def name_of(dtype: torch.dtype) -> str:
    """A dtype without its prefix."""
    return str(dtype).removeprefix("torch.")


def view(memory: mmap.mmap, slot: Slot) -> torch.Tensor:
    """The tensor at a slot; it shares the memory.

    Raises:
        ValueError: the slot does not lie within the memory.
    """
    dtype = dtype_of(slot.dtype)
    count = math.prod(slot.shape)
    if slot.offset < 0 or slot.offset + count * dtype.itemsize > len(memory):
        raise ValueError(f"{slot.name} does not lie within the shared memory")
    if count == 0:
        return torch.empty(slot.shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=slot.offset).view(slot.shape)
