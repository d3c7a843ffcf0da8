"""The GPUs that this process may use, as the CUDA driver lists them; asking makes no context on any of them."""

import ctypes
import uuid
from typing import NamedTuple

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
"""CUdevice_attribute numbers of the CUDA driver interface."""
_UUID_BYTES = 16


class Gpu(NamedTuple):
    """One GPU."""

    uuid: str
    """As nvidia-smi prints it and CUDA_VISIBLE_DEVICES takes it; the same whatever number the GPU has in a process."""
    capability: tuple[int, int]


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves this process, in its order; none without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(gpu for index in range(count.value) if (gpu := _gpu(driver, index)) is not None)


def _gpu(driver: ctypes.CDLL, index: int) -> Gpu | None:
    device = ctypes.c_int()
    raw = (ctypes.c_ubyte * _UUID_BYTES)()
    # The second version tells the part of a divided GPU (MIG) from the whole; drivers before 11.4 lack it.
    ask_uuid = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    if driver.cuDeviceGet(ctypes.byref(device), index) or ask_uuid(raw, device):
        return None
    capability = [ctypes.c_int(), ctypes.c_int()]
    for value, attribute in zip(capability, (_CAPABILITY_MAJOR, _CAPABILITY_MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return None
    return Gpu(f"GPU-{uuid.UUID(bytes=bytes(raw))}", (capability[0].value, capability[1].value))
