"""Sums by channel over the pieces of two tensors, which a GPU works through without being waited for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tools.pieces import Piece


@dataclass(frozen=True)
class Found:
    """What was summed up, on the host; float64, one element a channel."""

    error: torch.Tensor
    """Sums of squares, as is `truth`."""
    truth: torch.Tensor
    largest: torch.Tensor
    """The largest error."""
    largest_at: torch.Tensor
    """Its place in the flattened tensor."""
    broken: int
    """How many elements are NaN or infinite where the oracle is finite, or the reverse, or infinite of another sign."""
    broken_at: int
    """Where the first of them is in the flattened tensor."""


class ChannelSums:
    """Sums over the pieces of a tensor, by channel; a tensor of less than two dimensions is one channel."""

    def __init__(self, shape: tuple[int, ...], device: torch.device, *, careful: bool) -> None:
        """Where `careful`, elements that are not finite are told apart, and count as zeros in the sums."""
        self.shape = shape
        self._careful = careful
        channels = shape[1] if len(shape) >= 2 else 1
        self._sums = torch.zeros(2, channels, dtype=torch.float64, device=device)
        self._largest = torch.full((channels,), -1.0, dtype=torch.float64, device=device)
        self._largest_at = torch.zeros(channels, dtype=torch.int64, device=device)
        self._broken: list[torch.Tensor] = []
        """For each piece how many elements are broken, and where the first of them would be."""

    def add(self, piece: Piece, output: torch.Tensor, oracle: torch.Tensor) -> None:
        """Take a piece into account; pieces come in the tensor's order."""
        truth, error = oracle.to(torch.float64), output.to(torch.float64)
        if self._careful:
            finite = torch.isfinite(truth)
            same = (error == truth) | (torch.isnan(error) & torch.isnan(truth))
            self._note_broken(piece, torch.where(finite, ~torch.isfinite(error), ~same))
            error = torch.where(finite, error - truth, 0.0)
            truth = torch.where(finite, truth, 0.0)
        else:
            error = error - truth
        channels = piece[1] if len(self.shape) >= 2 else slice(0, 1)
        error, truth = self._rows(error), self._rows(truth)
        self._sums[0, channels] += error.square().sum(1)
        self._sums[1, channels] += truth.square().sum(1)
        largest, index = error.abs().max(1)
        within = [dim for dim in range(len(self.shape)) if dim != 1]
        at = self._flat(piece, index, within)
        if len(self.shape) >= 2:
            numbers = torch.arange(channels.start, channels.stop, device=at.device)
            at = at + numbers * math.prod(self.shape[2:])
        larger = largest > self._largest[channels]
        self._largest_at[channels] = torch.where(larger, at, self._largest_at[channels])
        self._largest[channels] = torch.where(larger, largest, self._largest[channels])

    def _note_broken(self, piece: Piece, broken: torch.Tensor) -> None:
        first = broken.flatten().to(torch.int8).argmax().reshape(1)
        at = self._flat(piece, first, range(len(self.shape)))
        self._broken.append(torch.cat((broken.sum().reshape(1), at)))

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        return values.transpose(0, 1).flatten(1) if len(self.shape) >= 2 else values.reshape(1, -1)

    def _flat(self, piece: Piece, index: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """Positions in the whole tensor of indices that count through some dimensions of a piece."""
        flat = torch.zeros_like(index)
        for dim in reversed(dims):
            size = piece[dim].stop - piece[dim].start
            if size > 1:
                flat = flat + (index % size) * math.prod(self.shape[dim + 1 :])
                index = index // size
            if piece[dim].start:
                flat = flat + piece[dim].start * math.prod(self.shape[dim + 1 :])
        return flat

    def found(self) -> Found:
        """What was found in all pieces; waits for the device once, or twice where careful."""
        parts = (*self._sums, self._largest, self._largest_at.to(torch.float64))
        error, truth, largest, largest_at = torch.stack(parts).cpu()
        counted: list[list[int]] = torch.stack(self._broken).tolist() if self._broken else []
        first = next((at for count, at in counted if count), 0)
        # float64 holds every place that a tensor of any memory has.
        return Found(error, truth, largest, largest_at.to(torch.int64), sum(count for count, _ in counted), first)
