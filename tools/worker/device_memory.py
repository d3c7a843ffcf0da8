"""GPU memory that the judge and a worker both map, through the CUDA driver's inter-process handles.

The judge writes the inputs of timed calls there and reads their outputs itself; the worker has no hand in it.
"""

import ctypes
from typing import Any

import torch

from tools.worker.shared_memory import bytes_at

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
"""CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag that cuIpcOpenMemHandle takes."""


class DeviceMemoryError(RuntimeError):
    """The driver refuses to share memory between processes; the text names the call and its CUresult."""


class _Handle(ctypes.Structure):
    """CUipcMemHandle: 64 opaque bytes, passed by value."""

    _fields_ = [("reserved", ctypes.c_char * _HANDLE_BYTES)]


def _driver() -> Any:
    driver = ctypes.CDLL("libcuda.so.1")
    # The primary context, which PyTorch uses too, must be current in this thread.
    torch.cuda.synchronize()
    return driver


def _check(status: int, call: str) -> None:
    if status:
        raise DeviceMemoryError(f"{call} answered CUresult {status}")


def allocate_shared(size_bytes: int) -> tuple[torch.Tensor, str]:
    """New GPU memory as a uint8 tensor, and the handle with which another process opens it, in hexadecimal."""
    driver = _driver()
    address = ctypes.c_uint64()
    _check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size_bytes)), "cuMemAlloc")
    handle = _Handle()
    _check(driver.cuIpcGetMemHandle(ctypes.byref(handle), address), "cuIpcGetMemHandle")
    return bytes_at(address.value, size_bytes, "cuda"), bytes(handle).hex()


class OpenedMemory:
    """Another process's shared GPU memory, mapped here until it is closed."""

    def __init__(self, handle: str, size_bytes: int) -> None:
        raw = bytes.fromhex(handle)
        if len(raw) != _HANDLE_BYTES:
            # No driver gives such a one, so it is the worker's fault.
            raise ValueError(f"it has {len(raw)} bytes, not {_HANDLE_BYTES}")
        self._driver = _driver()
        self._address = ctypes.c_uint64()
        opened = self._driver.cuIpcOpenMemHandle_v2(
            ctypes.byref(self._address), _Handle.from_buffer_copy(raw), ctypes.c_uint(_LAZY_PEER_ACCESS)
        )
        _check(opened, "cuIpcOpenMemHandle")
        if self._mapped_bytes() < size_bytes:
            # The handle is the worker's word. Beyond the end of what it opens, the judge's own kernels would fault.
            self.close()
            raise ValueError(f"the handle opens less than {size_bytes} bytes")
        self.tensor = bytes_at(int(self._address.value or 0), size_bytes, "cuda")

    def _mapped_bytes(self) -> int:
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        asked = self._driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), self._address)
        _check(asked, "cuMemGetAddressRange")
        return int((base.value or 0) + size.value - (self._address.value or 0))

    def close(self) -> None:
        """Unmap the memory; the tensor must not be used any more."""
        self._driver.cuIpcCloseMemHandle(self._address)
