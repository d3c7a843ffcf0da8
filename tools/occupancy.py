"""How many blocks of a kernel a multiprocessor holds at once, from what a block takes and what the device has.

The rules are those of NVIDIA's occupancy calculator, `cuda_occupancy.h` of the CUDA toolkit (13.0), for compute
capability 8.0 and later; the device's limits come from the driver.
"""

import math
from dataclasses import dataclass

from tools.machine import driver_attribute
from tools.profile_results import Occupancy, OccupancyLimit

_WARP = 32
_WARP_REGISTERS = 256
"""Registers are given to warps in units of so many."""
_PARTITIONS = 4
"""A multiprocessor's registers lie in so many parts, and a warp's in one of them."""
_SHARED_UNIT = 128
"""Shared memory is given to blocks in units of so many bytes."""
_PROCESSORS, _THREADS, _SHARED, _REGISTERS, _BLOCKS, _RESERVED = 16, 39, 81, 82, 106, 111
"""CUdevice_attribute numbers of the CUDA driver interface (`cuda.h`)."""


@dataclass(frozen=True)
class DeviceLimits:
    """What one multiprocessor has, and how many there are."""

    processors: int
    threads: int
    registers: int
    shared_bytes: int
    blocks: int
    reserved_bytes: int
    """Shared memory that the system takes of every block, besides what the kernel asks for."""


def device_limits(index: int) -> DeviceLimits | None:
    """The limits of a GPU by its number, from the driver; None where it does not tell them."""
    numbers = (_PROCESSORS, _THREADS, _REGISTERS, _SHARED, _BLOCKS, _RESERVED)
    processors, threads, registers, shared, blocks, reserved = (driver_attribute(each, index) for each in numbers)
    if not (processors and threads and registers and shared and blocks) or reserved is None:
        return None
    return DeviceLimits(processors, threads, registers, shared, blocks, reserved)


def occupancy(limits: DeviceLimits, *, blocks: int, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """The occupancy of a kernel whose grid has `blocks`.

    Args:
        limits: the device's.
        blocks: of the whole grid.
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block, static and dynamic, without what the system reserves.
    """
    warps = math.ceil(threads / _WARP)
    warp_registers = _rounded_up(registers * _WARP, _WARP_REGISTERS)
    warps_by_registers = limits.registers // _PARTITIONS // warp_registers * _PARTITIONS if warp_registers else None
    block_bytes = _rounded_up(shared_bytes + limits.reserved_bytes, _SHARED_UNIT)
    most: dict[OccupancyLimit, int] = {
        "threads": limits.threads // (warps * _WARP),
        "shared memory": limits.shared_bytes // block_bytes if block_bytes else limits.blocks,
        "block slots": limits.blocks,
    }
    if warps_by_registers is not None:
        most["registers"] = warps_by_registers // warps
    fewest = min(most.values())
    resident = fewest * limits.processors
    return Occupancy(
        blocks_per_sm=fewest,
        warps_per_sm=fewest * warps,
        share=fewest * warps * _WARP / limits.threads,
        limited_by=tuple(name for name, count in most.items() if count == fewest),
        waves=blocks / resident if resident else 0.0,
    )


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
