"""Skips at collection what this machine cannot run, and says what it lacks; holds what tests of all floors share."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Sequence

import pytest

from tasks.spec import Target
from tools import confinement
from tools.server_process import Processes, ServerProcess
from tools.servers import Servers
from tools.toolchain import find_cuda_home

# As the command line has it, before anything imports PyTorch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """The fork servers of judges on the host that are not about having one of their own: to start and end one takes
    three seconds, and the one for baselines saves each torch.compile as much.

    Candidates that want to harm it, and tests that end it or change its surroundings, have their own.
    """
    with contextlib.closing(Servers("lane")) as servers:
        yield started(servers, Target.CPU)


@pytest.fixture(scope="session")
def processes_for_cuda() -> Iterator[Processes]:
    """The same for judges that only compile for GPUs."""
    with contextlib.closing(Servers("builder")) as servers:
        yield started(servers, Target.CUDA)


def started(servers: Servers, target: Target) -> Processes:
    """Those of a target, when they have imported what they import: a measurement would notice."""
    shared = servers.of(target)
    assert shared is not None, "the fork servers that tests share could not be started"
    for server in filter(None, shared):
        server.await_ready()
    return shared


@pytest.fixture(scope="module")
def small_caches() -> Iterator[None]:
    """This process's judges take the host's caches to be those of a desktop. Before each timed call they are emptied,
    which took 53 ms on a busy server with 260 MB of them, and most tests say nothing about how fast anything is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tools.session.cache_bytes", lambda _: 32 << 20)
        yield


@pytest.fixture(scope="session")
def as_it_is() -> Iterator[ServerProcess]:
    """A fork server for tests of workers that no judge has: they are confined by all that this machine has, and what
    they allocate has no limit, as on a GPU."""
    with contextlib.closing(ServerProcess()) as process:
        yield process


@pytest.fixture(scope="session")
def without_namespaces() -> Iterator[ServerProcess]:
    """The same, but without bubblewrap."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confinement, "lacks_bubblewrap", lambda *, gpu: f"not used by these tests, gpu={gpu}")
        process = ServerProcess()
    with contextlib.closing(process):
        yield process


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the tests whose marker names something that is missing here."""
    for marker, lacks in (("gpu", _lacks_gpu), ("nvcc", _lacks_nvcc), ("ray", _lacks_ray)):
        marked = [item for item in items if item.get_closest_marker(marker) is not None]
        reason = lacks() if marked else None
        if reason is not None:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _lacks_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "needs an NVIDIA GPU that PyTorch can use"


def _lacks_nvcc() -> str | None:
    return None if find_cuda_home() is not None else "needs the CUDA toolkit: nvcc and the runtime's headers"


def _lacks_ray() -> str | None:
    return None if importlib.util.find_spec("ray") is not None else "needs Ray: pip install -e '.[ray]'"
