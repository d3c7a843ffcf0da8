"""Puts a candidate's text into a worker without a judge."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tools.build import Builder
from tools.candidate import Candidate
from tools.fork_server import ForkServer
from tools.replies import Done
from tools.server_process import ServerProcess
from tools.toolchain import find_toolchain
from tools.worker.messages import Construct, Load, Request
from tools.workers import CandidateFault, Worker

MEMORY_BYTES = 1 << 20
GOOD = """
from torch import nn

class ModelNew(nn.Module):
    pass
"""


@dataclass
class Bench:
    """A fork server, and a builder for what candidates ask for."""

    server: ForkServer
    builder: Builder
    timeout_s: float = 60.0

    @contextlib.contextmanager
    def worker(self) -> Iterator[Worker]:
        """A fresh worker, closed at the end."""
        worker = self.server.spawn(MEMORY_BYTES)
        try:
            yield worker
        finally:
            worker.close()

    def ask(self, worker: Worker, text: str, request: Request) -> Done:
        """One request of a candidate with this text."""
        return worker.ask(request, self.timeout_s, self.builder, Candidate(text))

    def load(self, worker: Worker, text: str) -> None:
        """Execute a text and construct its model."""
        self.ask(worker, text, Load(text, "cpu", allow_tf32=False))
        self.ask(worker, text, Construct("[]", training=False))

    def fault(self, text: str) -> CandidateFault:
        """How a candidate fails that does; whatever it did, the next one is served."""
        with self.worker() as worker:
            with pytest.raises(CandidateFault) as caught:
                self.load(worker, text)
            assert not worker.alive
        with self.worker() as worker:
            self.load(worker, GOOD)
            assert worker.alive
        return caught.value


def started_bench() -> Bench:
    """A bench with a server of its own; the caller closes it."""
    return bench_of(None)


def bench_of(process: ServerProcess | None) -> Bench:
    """A bench whose workers a process forks that others use, too; or one of its own."""
    return Bench(ForkServer(process=process), Builder(find_toolchain()))
