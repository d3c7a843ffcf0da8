"""Outputs of timed calls are read where they lie in a stopped worker; where and what they are is only its word."""

import ctypes
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from judging import CONVOLUTION, candidate_of, message_of, task_of, verdict_of
from pydantic import ValidationError
from tiers import needs_bubblewrap
from worker_bench import Bench, bench_of

from tasks.spec import Target
from tools import worker_memory
from tools.candidate import Candidate
from tools.judge import Judge
from tools.replies import Done, Held
from tools.server_process import Processes
from tools.subject import Limits, Subject
from tools.verdict import Verdict
from tools.worker_memory import WorkerMemory, refusal
from tools.workers import CandidateFault, Worker

pytestmark = pytest.mark.usefixtures("small_caches")

ROOM = 1 << 20
FORMS = {
    "contiguous": "2 * x",
    "transposed": "(2 * x).transpose(0, 2)",
    "a part": "torch.cat([x, 2 * x], -1)[..., 5:13]",
    "every third": "torch.repeat_interleave(2 * x, 3, -1)[..., ::3]",
    "spread wide": "torch.repeat_interleave(2 * x, 64, -1)[..., ::64]",
    "broadcast": "(2 * x[:1]).expand(3, 4, 16)",
    "negative": "torch._neg_view(-2 * x)",
    "conjugate": "torch.complex(x, 2 * x).conj()",
    "a scalar": "x.sum()",
    "of no elements": "x[..., :0]",
    "whole numbers": "(4 * x).to(torch.int16)",
    "flags": "x > 3",
    "several": "(x + 1, {'second': [x - 1, x.mT]})",
    "its input": "x",
    "a part of its input": "x[1:, :, 3:]",
    "a mapped file": "mapped(2 * x)",
}
MAPPED = """
import mmap

def mapped(values):
    with open("values", "w+b") as file:
        file.truncate(values.numel() * 4)
        lying = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.float32)
    return lying.copy_(values.flatten()).view(values.shape)
"""
TEXT = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return FORM
"""


TIERS = [
    pytest.param("as_it_is", marks=needs_bubblewrap, id="namespaces"),
    pytest.param("without_namespaces", id="kernel"),
]


@pytest.fixture(params=TIERS, scope="module")
def bench(request: pytest.FixtureRequest) -> Bench:
    """Workers with bubblewrap and without."""
    return bench_of(request.getfixturevalue(request.param))


@pytest.mark.parametrize("form", FORMS)
def test_outputs_of_every_form_are_read_as_the_worker_has_them(bench: Bench, form: str) -> None:
    text = MAPPED + TEXT.replace("FORM", FORMS[form])
    x = torch.arange(192, dtype=torch.float32).view(3, 4, 16) / 7
    with bench.worker() as worker:
        subject = Subject(worker, bench.builder, Candidate(text), "cpu", Limits())
        subject.load("cpu", allow_tf32=False)
        subject.construct("[]", training=False)
        subject.stage(0, x.numel() * 4, 1 << 16, watch=False, in_place=True)
        (place,) = subject.begin_timed([("x", x)], [], 0, 0, gated=False)
        worker.pause()
        place.copy_(x)
        worker.resume()
        done = subject.finish_timed()
        worker.pause()
        found = subject.returned_by_last_timed(done).outputs
    expected = eval(FORMS[form], {"torch": torch, "x": x, "mapped": lambda values: values})
    flat = [expected] if isinstance(expected, torch.Tensor) else [expected[0], *expected[1]["second"]]
    assert len(found) == len(flat)
    for (_, ours), theirs in zip(found, flat, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert torch.equal(ours, theirs)


def memory_of(pid: int) -> WorkerMemory:
    """Of any process that has no worker's other sides."""
    return WorkerMemory(cast("Worker", SimpleNamespace(pid=pid)))


def held(tensor: torch.Tensor, **changes: Any) -> Held:
    """Where a tensor of this process lies, or is said to lie."""
    told = {
        "name": "output",
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": tuple(tensor.shape),
        "strides": tensor.stride(),
        "address": tensor.data_ptr(),
    }
    return Held.model_validate({**told, **changes})


def fault_of(*items: Held) -> CandidateFault:
    with pytest.raises(CandidateFault) as caught:
        memory_of(os.getpid()).left(Done(held_outputs=items), ROOM)
    return caught.value


def test_the_outputs_and_the_state_have_the_names_that_they_are_compared_by() -> None:
    values = torch.arange(6.0)
    done = Done(held_outputs=(held(values),), held_state=(held(values + 1, name="running_mean"),))
    found = memory_of(os.getpid()).left(done, ROOM)
    assert [name for name, _ in found] == ["output", "state running_mean"]


def test_what_was_read_is_in_memory_of_its_own() -> None:
    values = torch.arange(6.0)
    ((_, found),) = memory_of(os.getpid()).left(Done(held_outputs=(held(values),)), ROOM)
    values.zero_()
    assert found.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("address", [0, 8, 1 << 46, (1 << 57) - 1])
def test_an_address_of_nothing_is_the_candidates_fault(address: int) -> None:
    fault = fault_of(held(torch.zeros(4), address=address))
    assert fault.verdict is Verdict.NO_RESULT
    assert "does not lie where the worker says" in fault.message


def test_what_ends_before_its_end_is_the_candidates_fault() -> None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, ctypes.c_size_t(8192), 3, 0x22, -1, ctypes.c_long(0))
    libc.munmap(ctypes.c_void_p(at + 4096), ctypes.c_size_t(4096))
    assert fault_of(held(torch.zeros(1), shape=(1025,), strides=(1,), address=at)).verdict is Verdict.NO_RESULT


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((1 << 40,), (1,)), ((2,), (1 << 40,)), ((1 << 20, 1 << 20), (0, 0)), ((1 << 50, 1 << 50), (1 << 50, 1))],
)
def test_more_than_there_is_room_for_is_not_read(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    fault = fault_of(held(torch.zeros(4), shape=shape, strides=strides))
    assert fault.verdict is Verdict.INCORRECT
    assert "far larger" in fault.message


def test_all_outputs_together_have_so_much_room() -> None:
    """One of a million, each within the room, would have the judge read for hours."""
    half = held(torch.zeros(ROOM // 8))
    assert memory_of(os.getpid()).left(Done(held_outputs=(half, half)), ROOM)
    assert fault_of(half, half, held(torch.zeros(1))).verdict is Verdict.INCORRECT


@pytest.mark.parametrize("dtype", ["no_such", "float64x", "nn", "quint8", "bits8"])
def test_a_dtype_that_no_output_has_is_no_fault_of_ours(dtype: str) -> None:
    values = torch.zeros(4, dtype=torch.float64)
    try:
        memory_of(os.getpid()).left(Done(held_outputs=(held(values, dtype=dtype),)), ROOM)
    except CandidateFault as fault:
        assert fault.verdict is Verdict.NO_RESULT


@pytest.mark.parametrize(
    "changes",
    [
        {"strides": ()},
        {"strides": (-1,)},
        {"shape": (-4,)},
        {"address": -1},
        {"address": 1 << 64},
        {"shape": (10**30,)},
    ],
)
def test_what_no_tensor_has_breaks_the_protocol(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        held(torch.zeros(4), **changes)


def test_outputs_that_are_written_where_none_was_asked_for() -> None:
    written = {"name": "output", "dtype": "float32", "shape": (4,), "offset": 0}
    with pytest.raises(CandidateFault, match="wrote them instead") as caught:
        memory_of(os.getpid()).left(Done.model_validate({"outputs": (written,)}), ROOM)
    assert caught.value.verdict is Verdict.NO_RESULT


def test_a_machine_is_asked_whether_it_lets_memory_be_read() -> None:
    assert refusal(os.getpid()) == ""
    ended = os.fork()
    if ended == 0:
        os._exit(0)
    os.waitpid(ended, 0)
    assert refusal(ended) == "No such process"


def test_where_memory_cannot_be_read_outputs_are_written_as_before(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    """A container's seccomp profile may refuse it."""

    def refused(*_: object) -> int:
        ctypes.set_errno(1)
        return -1

    monkeypatch.setattr(worker_memory, "_process_vm_readv", lambda: refused)
    assert refusal(os.getpid()) == "Operation not permitted"
    task = task_of(tmp_path, CONVOLUTION)
    with Judge(task, Target.CPU, allow_library=True, processes=processes) as judge:
        result = judge.benchmark(candidate_of(CONVOLUTION), against=candidate_of(CONVOLUTION))
        assert verdict_of(result) is Verdict.CORRECT, message_of(result)
        assert judge._session.server.memory_refusal == "Operation not permitted"
