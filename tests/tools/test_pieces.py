"""Checks cut large tensors into pieces: what they find is the same, and the memory they need has a bound."""

import functools
import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tools import pieces as cutting
from tools.accuracy import Errors, measure, measure_roughly, rms_of
from tools.comparison import require_unchanged
from tools.pieces import CHECKING_BYTES, GPU_CHECKING_BYTES, all_same_bits, pieces, same_bits
from tools.subject import Returned
from tools.workers import CandidateFault

SHAPES = [(), (1,), (100,), (7, 5), (1, 1, 300), (3, 4, 25), (2, 3, 4, 5), (40, 1, 2), (1, 40, 2), (5, 3, 1)]


def whole(output: torch.Tensor, oracle: torch.Tensor) -> Errors:
    """The definition of the errors, on the whole tensor at once; every element finite."""
    error = (output.double() - oracle).abs()
    rms, size = error.square().mean().sqrt(), oracle.square().mean().sqrt()
    scale, channel = size.expand(oracle.shape), rms / size
    if oracle.ndim >= 2:
        others = [dim for dim in range(oracle.ndim) if dim != 1]
        scale = oracle.square().mean(others, keepdim=True).sqrt()
        if oracle.numel() // oracle.shape[1] < 32:
            scale = scale.clamp_min(float(size))
        else:
            channel = (error.square().mean(others, keepdim=True).sqrt() / scale).max()
    relative = error / scale
    at = tuple(int(index) for index in torch.unravel_index(relative.argmax(), oracle.shape))
    return Errors(float(rms / size), float(channel), float(relative.max()), 0, at)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 7, 64, 1 << 21])
def test_pieces_cover_a_shape_once_and_in_order(shape: tuple[int, ...], size: int) -> None:
    numbers = torch.arange(math.prod(shape)).reshape(shape)
    found = [numbers[piece] for piece in pieces(shape, size)]
    assert torch.cat([piece.flatten() for piece in found]).tolist() == list(range(numbers.numel()))
    if shape:
        assert max(piece.numel() for piece in found) <= max(size, 1)


def test_an_empty_tensor_has_no_pieces() -> None:
    assert list(pieces((3, 0, 5), 1 << 21)) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 7, 64, 1 << 21])
def test_errors_do_not_depend_on_how_a_tensor_is_cut(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], size: int
) -> None:
    monkeypatch.setattr(cutting, "PIECE_ELEMENTS", size)
    oracle = 3.0 * torch.randn(shape, dtype=torch.float64)
    output = (oracle + 1e-3 * torch.randn(shape, dtype=torch.float64)).float()
    found, right = measure(output, oracle), whole(output, oracle)
    assert (found.rms, found.channel, found.peak) == pytest.approx((right.rms, right.channel, right.peak), rel=1e-12)
    assert (found.peak_at, found.pattern_broken) == (right.peak_at, 0)
    assert rms_of(oracle) == pytest.approx(float(oracle.square().mean().sqrt()), rel=1e-12)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_broken_elements_are_counted_over_all_pieces_and_the_first_named(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(cutting, "PIECE_ELEMENTS", size)
    output = torch.ones(3, 4, 25, dtype=torch.float64)
    output[1, 2, 7] = output[1, 2, 9] = output[2, 0, 0] = math.nan
    found = measure(output, torch.ones(3, 4, 25, dtype=torch.float64))
    assert (found.pattern_broken, found.peak_at) == (3, (1, 2, 7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("size", [7, 1 << 21])
def test_one_bit_anywhere_is_seen(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, size: int) -> None:
    monkeypatch.setattr(cutting, "PIECE_ELEMENTS", size)
    before = torch.zeros(3, 4, 5).to(dtype)
    for at in ((0, 0, 0), (1, 2, 3), (2, 3, 4)):
        after = before.clone()
        after[at] = 1
        assert same_bits(before, before.clone())
        assert not same_bits(before, after)
        with pytest.raises(CandidateFault, match="changed its input 'x'"):
            require_unchanged(Returned([], [after]), [("x", before)], "here")


def test_bits_are_compared_not_values() -> None:
    nan = torch.full((4,), math.nan)
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.zeros(4), -torch.zeros(4))
    assert not same_bits(torch.zeros(4), torch.zeros(2, 2))
    assert not same_bits(torch.zeros(4), torch.zeros(4, dtype=torch.int32))


def test_several_pairs_are_told_apart() -> None:
    one, other = torch.zeros(3, 4), torch.ones(3, 4)
    empty = torch.zeros(0, 4)
    pairs = [(one, one.clone()), (one, other), (one, one.double()), (empty, empty), (other, other.clone())]
    assert all_same_bits(pairs) == [True, False, False, True, True]
    assert all_same_bits([]) == []


GROWTH = """
import json, os, resource, sys, torch
from tools.accuracy import Limits, measure
from tools.comparison import _where_wrong
from tools.pieces import same_bits

def growth_bytes(shape, check):
    oracle = torch.ones(shape, dtype=torch.float64)
    output = torch.ones(shape)
    output[..., -1] = 2.0
    small = output[:1, :1, :4].clone()
    measure(small, small.double()), same_bits(small, small), _where_wrong(small, small.double(), Limits(1.0, 1.0, 1.0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    exec(check, globals(), dict(output=output, oracle=oracle))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024

for shape, check in json.loads(sys.argv[1]):
    if os.fork() == 0:
        print(growth_bytes(shape, check), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(check)
"""
LARGE = ((40, 250, 4000), (1, 2, 20_000_000))
"""40 million elements: 320 MB in float64, of which the checks once made six more."""
CHECKS = (
    "assert measure(output, oracle).peak == 1.0",
    "assert 'along the last dimension' in _where_wrong(output, oracle, Limits(0.1, 0.1, 0.1))",
    "assert same_bits(output, output)",
)


@pytest.fixture(scope="module")
def growths() -> dict[tuple[tuple[int, ...], str], int]:
    """How many bytes each check needs beside the tensors, each in a process of its own, forked from one that has
    imported PyTorch."""
    asked = [(shape, check) for shape in LARGE for check in CHECKS]
    argv = [sys.executable, "-c", GROWTH, json.dumps(asked)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(asked, map(int, done.stdout.split()), strict=True))


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("check", CHECKS)
def test_checking_a_large_output_needs_little_memory_beside_it(
    shape: tuple[int, ...], check: str, growths: dict[tuple[tuple[int, ...], str], int]
) -> None:
    assert growths[shape, check] < CHECKING_BYTES


@pytest.mark.gpu
def test_checking_on_the_gpu_needs_little_memory_beside_the_output() -> None:
    oracle = torch.ones((32, 128, 131_072), dtype=torch.float64, device="cuda")
    output = torch.ones_like(oracle, dtype=torch.float32)
    output[3, 4, 5] = 1.5
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = measure(output, oracle)
    assert same_bits(output, output)
    assert torch.cuda.max_memory_allocated() - before < GPU_CHECKING_BYTES
    assert found.peak_at == (3, 4, 5)


@pytest.mark.gpu
@pytest.mark.parametrize("pieces_of_7", [False, True])
def test_the_gpu_compares_as_the_host_does_and_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, pieces_of_7: bool
) -> None:
    if pieces_of_7:
        monkeypatch.setattr(cutting, "GPU_PIECE_ELEMENTS", 7)
    one, nan = torch.randn(3, 4, 50), torch.full((5,), math.nan)
    other = one.clone()
    other[2, 1, 7] += 1e-3
    broken = one.clone()
    broken[1, 2, 3] = broken[2, 0, 0] = math.nan
    pairs = [(one, one.clone()), (one, other), (nan, nan.clone()), (one.half(), other.half())]
    on_gpu = [(ours.cuda(), theirs.cuda()) for ours, theirs in pairs]
    assert _with_waits(lambda: all_same_bits(on_gpu)) == (all_same_bits(pairs), 1)
    for output, most in ((other, 1), (broken, 3)):
        x, y = output.cuda(), one.cuda()
        rough, rough_waits = _with_waits(functools.partial(measure_roughly, x, y))
        exact, exact_waits = _with_waits(functools.partial(measure, x, y.double()))
        right = measure(output, one.double())
        assert exact.rms == pytest.approx(right.rms, rel=1e-12)
        assert (exact.peak_at, exact.pattern_broken) == (right.peak_at, right.pattern_broken)
        wanted = measure_roughly(output, one)
        found = (rough.rms, rough.channel, rough.peak)
        assert found == pytest.approx((wanted.rms, wanted.channel, wanted.peak), rel=1e-4, nan_ok=True)
        assert rough_waits == 1
        assert 1 <= exact_waits <= most


def _with_waits(work: Callable[[], Any]) -> tuple[Any, int]:
    """What some work gives, and how often it waits for the GPU."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            found = work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return found, sum("called a synchronizing" in str(each.message) for each in caught)
