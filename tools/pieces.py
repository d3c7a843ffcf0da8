"""Cuts a tensor into pieces, so that checking a large one needs no second one of its size."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import torch

PIECE_ELEMENTS = 1 << 21
"""16 MiB in float64."""
CHECKING_BYTES = 256 << 20
"""What a comparison of two tensors needs beside them, at most: a dozen float64 tensors of a piece's size."""
GPU_PIECE_ELEMENTS = 1 << 24
GPU_CHECKING_BYTES = 2 << 30
"""The same on a GPU, or the 64th part of its memory where that is less: there each piece costs launches and a wait."""

Piece = tuple[slice, ...]
"""One slice for each dimension."""


def pieces_of(tensor: torch.Tensor) -> Iterator[Piece]:
    """Pieces that cover a tensor in its order, as large as its device's memory makes sensible."""
    return pieces(tuple(tensor.shape), _elements(tensor.device))


def _elements(device: torch.device) -> int:
    if device.type != "cuda":
        return PIECE_ELEMENTS
    room = _memory_bytes(device) // 64
    return min(GPU_PIECE_ELEMENTS, max(PIECE_ELEMENTS, PIECE_ELEMENTS * room // CHECKING_BYTES))


@functools.cache
def _memory_bytes(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory


def pieces(shape: tuple[int, ...], elements: int) -> Iterator[Piece]:
    """Pieces of at most so many elements that cover a shape in its order; none of an empty one.

    Leading dimensions are cut, as far as needed; the others stay whole.
    """
    if 0 in shape:
        return
    cut = 0
    while cut < len(shape) - 1 and math.prod(shape[cut + 1 :]) > elements:
        cut += 1
    whole = tuple(slice(0, size) for size in shape[cut + 1 :])
    if not shape:
        yield ()
        return
    step = max(1, elements // math.prod(shape[cut + 1 :]))
    for single in itertools.product(*(range(size) for size in shape[:cut])):
        for start in range(0, shape[cut], step):
            stop = min(start + step, shape[cut])
            yield (*(slice(index, index + 1) for index in single), slice(start, stop), *whole)


def same_bits(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits; NaN equals the same NaN, and zero not minus zero."""
    return all_same_bits([(ours, theirs)])[0]


def all_same_bits(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[bool]:
    """`same_bits` of each pair; a GPU is waited for once."""
    same = [ours.shape == theirs.shape and ours.dtype == theirs.dtype for ours, theirs in pairs]
    pending: list[tuple[int, torch.Tensor]] = []
    for index, (ours, theirs) in enumerate(pairs):
        if same[index] and ours.device.type == "cpu":
            same[index] = all(torch.equal(_bits(ours[piece]), _bits(theirs[piece])) for piece in pieces_of(ours))
        elif same[index]:
            for piece in pieces_of(ours):
                pending.append((index, (_bits(ours[piece]) == _bits(theirs[piece])).all()))
    if pending:
        equal: list[bool] = torch.stack([flag for _, flag in pending]).tolist()
        for (index, _), one in zip(pending, equal, strict=True):
            same[index] = same[index] and one
    return same


_WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers that compare as the bits of a dtype of so many bytes."""


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(_WHOLE.get(tensor.element_size(), torch.uint8))
