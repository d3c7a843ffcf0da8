"""Reads tensors out of a stopped worker's own memory, so that nothing is copied while a clock runs.

What lies where is the worker's word. The process is not: an address that means something in another one only cannot be
read, or holds what the worker has there. What is read lies in memory of the judge's own.

NOT seen: whether memory is shared with other processes. Those of the worker's group are stopped as well, and seccomp
refuses that one leaves it.
"""

import ctypes
import errno
import functools
import math
import os
from typing import Any

import torch

from tools.replies import Done, Held
from tools.verdict import Verdict
from tools.worker.shared_memory import dtype_of
from tools.workers import CandidateFault, Worker


class UnreadableError(OSError):
    """Another process's memory cannot be read at an address; `errno` says why."""


class _Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@functools.cache
def _process_vm_readv() -> Any:
    call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    call.restype = ctypes.c_ssize_t
    vectors = (ctypes.POINTER(_Vector), ctypes.c_ulong)
    call.argtypes = [ctypes.c_int, *vectors, *vectors, ctypes.c_ulong]
    return call


def refusal(pid: int) -> str:
    """Why the machine does not let the memory of a process that we started be read; empty where it does.

    To be asked of a process that has no candidate yet, which could forbid it.
    """
    try:
        _read(pid, 0, torch.empty(1, dtype=torch.uint8))
    except UnreadableError as error:
        # The kernel looks at the address last, and there is nothing at this one.
        return "" if error.errno == errno.EFAULT else os.strerror(error.errno or 0)
    return ""


class WorkerMemory:
    """The memory of one worker, as the judge reads it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._buffers: dict[str, torch.Tensor] = {}
        """What was read last, by name: new memory would cost each call as much time again."""

    def left(self, done: Done, most_bytes: int) -> list[tuple[str, torch.Tensor]]:
        """The outputs that the worker says it holds, then updated buffers as `state NAME`; valid until the next call of
        this method. The worker must be stopped.

        Raises:
            CandidateFault: they take more than `most_bytes`, have no form that a tensor has, or cannot be read.
        """
        if done.outputs or done.state:
            raise CandidateFault(
                Verdict.NO_RESULT, "the worker was asked where its outputs lie, and wrote them instead."
            )
        named = [(item.name, item) for item in done.held_outputs]
        named += [(f"state {item.name}", item) for item in done.held_state]
        kept, self._buffers = self._buffers, {}
        found = []
        for name, item in named:
            size = item.span * _item_bytes(name, item)
            # A broadcast tensor is larger than what there is of it.
            if max(size, math.prod(item.shape) * _item_bytes(name, item)) > most_bytes:
                raise CandidateFault(
                    Verdict.INCORRECT,
                    f"{name} has shape {item.shape} and dtype {item.dtype}, which is far larger than the reference's.",
                )
            most_bytes -= size
            raw = kept.pop(name, None)
            if raw is None or raw.numel() != size:
                raw = torch.empty(size, dtype=torch.uint8)
            self._buffers[name] = raw
            found.append((name, self._read(name, item, raw)))
        return found

    def _read(self, name: str, item: Held, raw: torch.Tensor) -> torch.Tensor:
        try:
            _read(self._worker.pid, item.address, raw)
            return raw.view(dtype_of(item.dtype)).as_strided(item.shape, item.strides)
        except UnreadableError as error:
            if error.errno == errno.ESRCH:
                raise self._worker.death() from error
            raise CandidateFault(
                Verdict.NO_RESULT, f"{name} does not lie where the worker says it does: {error.strerror}."
            ) from error
        except RuntimeError as error:
            raise _unlike_a_tensor(name, error) from error


def _item_bytes(name: str, item: Held) -> int:
    try:
        return dtype_of(item.dtype).itemsize
    except ValueError as error:
        raise _unlike_a_tensor(name, error) from error


def _unlike_a_tensor(name: str, error: Exception) -> CandidateFault:
    return CandidateFault(Verdict.NO_RESULT, f"the worker's answer cannot be read: {name}: {error}")


def _read(pid: int, address: int, into: torch.Tensor) -> None:
    done, size = 0, into.numel()
    while done < size:
        ours = _Vector(into.data_ptr() + done, size - done)
        theirs = _Vector(address + done, size - done)
        got = _process_vm_readv()(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if got <= 0:
            # Nothing more without an error: what follows is unmapped.
            number = ctypes.get_errno() if got < 0 else errno.EFAULT
            raise UnreadableError(number, f"{os.strerror(number)} at {address + done:#x}")
        done += got
