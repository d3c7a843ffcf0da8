"""The fork servers of one process of the pool: started before it imports PyTorch, and shared by all its judges."""

import contextlib
import threading
from collections.abc import Collection

from tasks.errors import KernelwrightError
from tasks.spec import Target
from tools.jobs import Role
from tools.lease import building
from tools.server_process import Processes, ServerProcess


class Servers:
    """For each target those that its judges share.

    What may have failed is replaced for judges to come; those that still use it keep it until they end.
    """

    def __init__(self, role: Role) -> None:
        """A lane has one for baselines, too."""
        self._role = role
        self._given: dict[Target, Processes] = {}
        self._replaced: list[Processes] = []
        self._starting = threading.Lock()

    def start(self, target: Target) -> None:
        """Have them start beside whatever this process does; on the host, a builder's at a time when it may build."""
        threading.Thread(target=self._start, args=(target,), daemon=True).start()

    def _start(self, target: Target) -> None:
        with contextlib.suppress(KernelwrightError):
            if self._role == "lane" or target is Target.CUDA:
                self.of(target)
                return
            with self._starting, building():
                if (processes := self._of(target)) is not None:
                    processes.candidates.await_ready()

    def of(self, target: Target) -> Processes | None:
        """Those to use now; None where they cannot be started, which a judge that starts its own will tell of."""
        with self._starting:
            return self._of(target)

    def _of(self, target: Target) -> Processes | None:
        if target not in self._given:
            with contextlib.suppress(KernelwrightError, OSError):
                self._given[target] = self._started(target)
        return self._given.get(target)

    def _started(self, target: Target) -> Processes:
        candidates = ServerProcess.for_target(target)
        if self._role == "builder":
            return Processes(candidates)
        try:
            return Processes(candidates, ServerProcess.for_target(target, compiles=True))
        except BaseException:
            candidates.close()
            raise

    def replace(self, processes: Processes | None) -> None:
        """Give these to no judge any more."""
        for target, given in list(self._given.items()):
            if given is processes:
                self._replaced.append(self._given.pop(target))

    def end_unused(self, used: Collection[Processes | None]) -> None:
        """End what was replaced, but for what is `used`."""
        for processes in [each for each in self._replaced if each not in used]:
            servers = [server for server in processes if server is not None]
            for server in servers:
                server.hang_up()
            for server in servers:
                server.close()
            self._replaced.remove(processes)

    @property
    def pids(self) -> set[int]:
        """Of all that run."""
        running = [*self._given.values(), *self._replaced]
        return {server.pid for processes in running for server in processes if server is not None}

    def close(self) -> None:
        """End all of them."""
        self._replaced += self._given.values()
        self._given.clear()
        self.end_unused(())
