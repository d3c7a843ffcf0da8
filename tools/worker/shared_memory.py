"""Tensors as views of memory that the judge and a worker both map."""

import math

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


def view(memory: torch.Tensor, slot: Slot) -> torch.Tensor:
    """The tensor at a slot of a uint8 tensor; it shares the memory.

    Raises:
        ValueError: the slot does not lie within the memory.
    """
    dtype = dtype_of(slot.dtype)
    count = math.prod(slot.shape)
    size = count * dtype.itemsize
    if slot.offset < 0 or min(slot.shape, default=0) < 0 or slot.offset + size > memory.numel():
        raise ValueError(f"{slot.name} does not lie within the shared memory")
    return memory[slot.offset : slot.offset + size].view(dtype).view(slot.shape)
