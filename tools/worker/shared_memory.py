"""Tensors as views of memory that the judge and a worker both map."""

import ctypes
import math
from typing import Any

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
    # Beside a size of 0, one beyond 64 bits takes no memory.
    beyond = max(slot.shape, default=0) > memory.numel()
    if slot.offset < 0 or min(slot.shape, default=0) < 0 or beyond or slot.offset + size > memory.numel():
        raise ValueError(f"{slot.name} does not lie within the shared memory")
    return memory[slot.offset : slot.offset + size].view(dtype).view(slot.shape)


class _GpuArray:
    """What torch.as_tensor reads to wrap GPU memory without a copy."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def bytes_at(address: int, size_bytes: int, device: str) -> torch.Tensor:
    """Memory that PyTorch does not own, as a uint8 tensor whose storage is just these bytes."""
    if device == "cuda":
        return torch.as_tensor(_GpuArray(address, size_bytes), device="cuda")
    raw: Any = (ctypes.c_uint8 * size_bytes).from_address(address)
    return torch.frombuffer(raw, dtype=torch.uint8)


def apart(memory: torch.Tensor, slot: Slot) -> torch.Tensor:
    """As `view`, but with a storage of its own, as a tensor has that was allocated alone."""
    shared = view(memory, slot)
    if not shared.numel():
        return torch.empty_like(shared)
    alone = bytes_at(shared.data_ptr(), shared.numel() * shared.element_size(), shared.device.type)
    return alone.view(shared.dtype).view(shared.shape)
