"""How many blocks fit on a multiprocessor: figures worked out by hand for an H200 and an RTX 3090."""

import pytest

from tools.occupancy import DeviceLimits, occupancy

# The table "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide.
H200 = DeviceLimits(
    processors=132, threads=2048, registers=65536, shared_bytes=228 << 10, blocks=32, reserved_bytes=1024
)
RTX_3090 = DeviceLimits(
    processors=82, threads=1536, registers=65536, shared_bytes=100 << 10, blocks=16, reserved_bytes=1024
)


@pytest.mark.parametrize(
    ("limits", "threads", "registers", "shared", "blocks", "share", "limited_by"),
    [
        # 2048 / 256 = 8 blocks; 32 registers take 1,024 a warp, 64 warps.
        (H200, 256, 32, 0, 8, 1.0, ("threads", "registers")),
        # 128 registers take 4,096 a warp: 4 in each of 4 parts of 16,384, 16 warps, 2 blocks of 8.
        (H200, 256, 128, 0, 2, 0.25, ("registers",)),
        # 255 registers are given as 256: 8,192 a warp, 2 in each part, 8 warps, 1 block.
        (H200, 256, 255, 0, 1, 0.125, ("registers",)),
        # 40 registers: 1,280 a warp, 12 (not 12.8) in each part, 48 warps, 6 blocks of 8.
        (H200, 256, 40, 0, 6, 0.75, ("registers",)),
        # 100 KiB and 1 KiB reserved: two of them in 228.
        (H200, 128, 32, 100 << 10, 2, 0.125, ("shared memory",)),
        # 113 KiB and 1 KiB make 114: exactly two; a byte more and only one fits.
        (H200, 128, 32, 113 << 10, 2, 0.125, ("shared memory",)),
        (H200, 128, 32, (113 << 10) + 1, 1, 0.0625, ("shared memory",)),
        # 32 threads: no more than 32 blocks, so half of the warps.
        (H200, 32, 16, 0, 32, 0.5, ("block slots",)),
        # 100 threads are 4 warps.
        (H200, 100, 32, 0, 16, 1.0, ("threads", "registers")),
        (RTX_3090, 256, 32, 0, 6, 1.0, ("threads",)),
        (RTX_3090, 64, 32, 0, 16, 2 / 3, ("block slots",)),
    ],
)
def test_blocks_by_hand(
    limits: DeviceLimits,
    threads: int,
    registers: int,
    shared: int,
    blocks: int,
    share: float,
    limited_by: tuple[str, ...],
) -> None:
    found = occupancy(limits, blocks=1, threads=threads, registers=registers, shared_bytes=shared)
    assert found.blocks_per_sm == blocks
    assert found.share == pytest.approx(share)
    assert set(found.limited_by) == set(limited_by)
    assert found.warps_per_sm == blocks * -(-threads // 32)


def test_waves_are_blocks_over_those_that_fit_at_once() -> None:
    # 8 blocks on each of 132 multiprocessors.
    found = occupancy(H200, blocks=1056 * 3 // 2, threads=256, registers=32, shared_bytes=0)
    assert found.waves == 1.5


def test_a_kernel_that_fits_nowhere_has_no_waves() -> None:
    found = occupancy(RTX_3090, blocks=10, threads=128, registers=32, shared_bytes=200 << 10)
    assert (found.blocks_per_sm, found.waves) == (0, 0.0)
