"""Workers that are started ahead: forked, confined and on the GPU before there is a candidate for them.

Starting one takes a fifth of a second, nearly all of it CUDA's (on an H200; two at once kept a verification waiting).
That happens while another candidate is being verified or warms up, never during a measurement.
"""

from collections.abc import Callable

from tools.candidate_fault import CandidateFault
from tools.server_process import START_TIMEOUT_S
from tools.worker.messages import Warm
from tools.workers import Worker


class Ahead:
    """The workers of one session that stand ready."""

    def __init__(self, spawn: Callable[[int], Worker], device: str) -> None:
        """`spawn` forks a worker with so many bytes of shared memory; `device` is the one to bring up."""
        self._spawn = spawn
        self._device = device
        self._memory_bytes = 0
        """The most that was asked for up to now."""
        self._starting: list[Worker] = []
        self._standing: list[Worker] = []

    def start(self, count: int) -> None:
        """See to it that so many workers stand or are being started; does not wait for them."""
        while len(self) < count:
            worker = self._spawn(self._memory_bytes)
            try:
                worker.tell(Warm(self._device))
            except CandidateFault:
                # Asked for beside a candidate, which is not to blame for it.
                worker.close()
                return
            self._starting.append(worker)

    def settle(self) -> None:
        """Wait until those that are being started stand; one that cannot is dropped, for who needs it will see why."""
        while self._starting:
            worker = self._starting.pop()
            try:
                worker.hear(START_TIMEOUT_S)
            except CandidateFault:
                worker.close()
            else:
                self._standing.append(worker)

    def take(self, memory_bytes: int) -> Worker | None:
        """A worker that stands, with at least so much shared memory; None where there is none. One with less is ended:
        it would stand in the place of one that can be used."""
        self._memory_bytes = max(self._memory_bytes, memory_bytes)
        self.settle()
        while self._standing:
            worker = self._standing.pop(0)
            # Nobody's candidate is to blame for the end of one that had none.
            if worker.memory.numel() >= memory_bytes and not worker.server.ended(worker.number):
                return worker
            worker.close()
        return None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._starting) + len(self._standing)

    def close(self) -> None:
        """End them all."""
        for workers in (self._starting, self._standing):
            while workers:
                workers.pop().close()
