"""CUDA comes up in every tier of the sandbox, and its memory can be shared with the judge from there."""

from collections.abc import Iterator

import pytest
import torch
from tiers import without_bubblewrap
from worker_bench import GOOD, Bench

from tools import confinement
from tools.build import Builder
from tools.fork_server import ForkServer
from tools.toolchain import find_toolchain
from tools.worker.device_memory import OpenedMemory
from tools.worker.messages import Construct, Load, Stage
from tools.workers import Worker

pytestmark = pytest.mark.gpu
SHARED_BYTES = 1 << 20
FILLS = f"import torch\nones = torch.ones(1 << 20, device='cuda').sum().item()\nassert ones == 1 << 20\n{GOOD}"
LEAVES_A_MESSAGE = "open('/dev/shm/message', 'w').write('from an earlier worker')\n"


@pytest.fixture(params=["namespaces", "kernel"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    torch.cuda.init()
    if request.param == "kernel":
        monkeypatch.setattr(confinement, "lacks_bubblewrap", without_bubblewrap)
    elif reason := confinement.lacks_bubblewrap(gpu=True):
        pytest.skip(reason)
    bench = Bench(ForkServer(gpu=True), Builder(find_toolchain()))
    yield bench
    bench.server.close()


def load_on_gpu(bench: Bench, worker: Worker, text: str) -> None:
    bench.ask(worker, text, Load(text, "cuda", allow_tf32=False))
    bench.ask(worker, text, Construct("[]", training=False))


def test_cuda_comes_up_although_shared_memory_is_not_shared(bench: Bench) -> None:
    """Workers may no longer write to the host's /dev/shm; that CUDA never needs it there could only be seen here."""
    with bench.worker() as worker:
        load_on_gpu(bench, worker, FILLS)


def test_gpu_memory_is_shared_with_the_judge(bench: Bench) -> None:
    """The driver opens another process's memory through process numbers and abstract sockets."""
    with bench.worker() as worker:
        load_on_gpu(bench, worker, FILLS)
        stage = Stage(shared_bytes=SHARED_BYTES, watch=False)
        handle = bench.ask(worker, FILLS, stage).handle
        assert handle
        opened = OpenedMemory(handle, SHARED_BYTES)
        opened.tensor.fill_(7)
        torch.cuda.synchronize()
        assert int(opened.tensor.sum(dtype=torch.int64)) == 7 * SHARED_BYTES
        opened.close()


def test_no_message_stays_in_shared_memory(bench: Bench, request: pytest.FixtureRequest) -> None:
    private = "namespaces" in request.node.name
    if private:
        with bench.worker() as worker:
            load_on_gpu(bench, worker, LEAVES_A_MESSAGE + GOOD)
    else:
        assert "PermissionError" in bench.fault(LEAVES_A_MESSAGE).message
    assert "FileNotFoundError" in bench.fault("open('/dev/shm/message').read()\n").message or not private
