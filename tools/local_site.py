"""This machine as a site of a pool: a lane for each of its GPUs, builders on its cores."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.spec import Target
from tools.gpus import Gpu, visible_gpus
from tools.jobs import Role
from tools.members import JUDGE, MemberProcess
from tools.usage import MEMORY_VARIABLE, host_memory_bytes

_CORES_OF_A_LANE = 2
"""With a GPU the judge and the worker that is measured have a core each. On the host a measurement excludes builds."""
_NICENESS = 10
_BUILD_BYTES = 3 << 30
"""What a builder, its worker and two compilers with PyTorch's headers take at most."""


@dataclass(frozen=True)
class LocalSite:
    """Lanes and builders of this machine; make one with `local_site`."""

    target: Target
    lanes: tuple[str, ...]
    builders: int
    gpus: tuple[Gpu, ...]
    progress: Callable[[str], None]
    judge: str = JUDGE
    name: str = field(default="", init=False)

    def start(self, role: Role, number: int) -> MemberProcess:
        """As of `tools.pool_queue.Site`."""
        where = self.lanes[number] if role == "lane" else f"builder:{number}"
        environment = member_environment(role, self.builders)
        if role == "lane" and len(self.gpus) > 1:
            # By its own identity, so that no numbering can give two lanes the same one.
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[number % len(self.gpus)].uuid
        return MemberProcess(
            role,
            lambda message: self.progress(f"{where}: {message}"),
            environment,
            self.judge,
            niceness(role, self.target),
        )


def local_site(
    target: Target,
    progress: Callable[[str], None],
    *,
    lanes: int | None = None,
    builders: int | None = None,
    judge: str = JUDGE,
) -> LocalSite:
    """This machine as a site.

    Args:
        target: of the jobs that it will be given.
        progress: is told what lanes and builders do or wait for; called from several threads.
        lanes: by default one for each visible GPU, and one on the host; more than GPUs share them, under their leases.
        builders: by default as many as cores and memory allow.
        judge: the `MODULE:CLASS` of the judges.
    """
    gpus = visible_gpus() if target is Target.CUDA else ()
    count = lanes or max(1, len(gpus))
    names = tuple(f"{target}:{number}" for number in range(count))
    if builders is None:
        builders = builders_for(target, count, len(os.sched_getaffinity(0)), host_memory_bytes())
    return LocalSite(target, names, builders, gpus, progress, judge)


def builders_for(target: Target, lanes: int, cores: int, memory_bytes: int) -> int:
    """How many builders a machine has room for beside its lanes, at least one."""
    if target is Target.CUDA:
        cores -= _CORES_OF_A_LANE * lanes
    return max(1, min(cores, memory_bytes // _BUILD_BYTES))


def niceness(role: Role, target: Target) -> int:
    """Builders work beside a GPU's judge and the worker that it measures, which come first; on the host they don't."""
    return _NICENESS if role == "builder" and target is Target.CUDA else 0


def member_environment(role: Role, builders: int) -> dict[str, str]:
    """The environment of a process beside so many builders: this one's, and for a builder its share of the memory."""
    if role == "lane":
        return dict(os.environ)
    return {**os.environ, MEMORY_VARIABLE: str(host_memory_bytes() // builders)}
