"""The nodes of a Ray cluster as sites of a pool: a process for each of their GPUs, builders on their cores.

An actor watches each process, and Ray does nothing else: the processes are those of `tools.members`, so everything is
confined, leased and ended as on one machine. Candidates are built on the node that measures them, since what was built
elsewhere may not fit its processor or GPU; so nodes without a GPU do nothing for the `cuda` target. Every node needs
this version of Kernelwright installed. Nodes that join later are not used.
"""

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import Any, cast

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tasks.errors import HarnessError, UnavailableError, UsageError
from tasks.spec import Target
from tools.jobs import REPLY, Answer, Ask, Ended, Progress, Role
from tools.local_site import builders_for, member_environment, niceness
from tools.members import JUDGE, MemberEndedError, MemberProcess, SiteLostError

_LOOK_EVERY_S = 5.0
"""While an actor is not placed yet: its node may be busy with other work, or gone."""
_LOST_WITHIN_S = 60.0
"""After an actor could not be started."""


class _Watcher:
    """Runs on a node, and holds one process of the pool there."""

    def __init__(self, role: Role, target: Target, builders: int, judge: str) -> None:
        environment = member_environment(role, builders)
        if role == "builder":
            # Ray hides GPUs from what uses none; a builder asks what to compile for.
            environment.pop("CUDA_VISIBLE_DEVICES", None)
        self._member = MemberProcess(role, print, environment, judge, niceness(role, target))

    def ask(self, ask: str) -> str:
        """As of `Member`, as JSON texts; an `Ended` where the process ended."""
        try:
            return self._member.ask(Ask.model_validate_json(ask)).model_dump_json()
        except MemberEndedError as error:
            return Ended(message=str(error)).model_dump_json()

    def ready(self) -> None:
        """Answers once the actor stands."""

    def close(self) -> None:
        """End the process."""
        self._member.close()


class RayMember:
    """The pool's end of a process on a node."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def ask(self, ask: Ask) -> Answer:
        """As of `tools.members.Member`."""
        try:
            text = ray.get(self._actor.ask.remote(ask.model_dump_json()))
        except ray.exceptions.RayError as error:
            raise MemberEndedError(f"could not be reached any more: {error}") from error
        reply = REPLY.validate_json(cast(str, text))
        if isinstance(reply, Ended | Progress):
            raise MemberEndedError(reply.message)
        return reply

    def close(self) -> None:
        """As of `tools.members.Member`."""
        # Where the actor is gone its process has ended, too.
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._actor.close.remote())
        ray.kill(self._actor)


@dataclass(frozen=True)
class RaySite:
    """One node of a cluster; `ray_sites` makes them."""

    node: str
    """Its id."""
    name: str
    lanes: tuple[str, ...]
    builders: int
    target: Target
    judge: str

    def start(self, role: Role, _number: int) -> RayMember:
        """As of `tools.pool_queue.Site`; Ray itself gives each lane a GPU of its own."""
        gpus = 1 if role == "lane" and self.target is Target.CUDA else 0
        cpus = 1 if role == "builder" else 0
        watcher: Any = ray.remote(_Watcher)
        remote = watcher.options(
            num_cpus=cpus,
            num_gpus=gpus,
            # `close` beside an `ask` that is under way.
            max_concurrency=2,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self.node, soft=False),
        )
        actor = remote.remote(role, self.target, self.builders, self.judge)
        ready = actor.ready.remote()
        while self._alive():
            try:
                ray.get(ready, timeout=_LOOK_EVERY_S)
                return RayMember(actor)
            except ray.exceptions.GetTimeoutError:
                continue
            except ray.exceptions.RayError as error:
                self._require_lost(error)
        raise SiteLostError(self.name)

    def _require_lost(self, error: ray.exceptions.RayError) -> None:
        """Return when the node is gone, which the cluster learns with a delay.

        Raises:
            HarnessError: it is not.
        """
        deadline = time.monotonic() + _LOST_WITHIN_S
        while self._alive():
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"node {self.name} of the Ray cluster cannot start a process of the pool: {error}; install this "
                    "version of Kernelwright on every node."
                ) from error
            time.sleep(1)

    def _alive(self) -> bool:
        return any(node["NodeID"] == self.node and node["Alive"] for node in _nodes())


def ray_sites(address: str, target: Target, judge: str = JUDGE) -> list[RaySite]:
    """The nodes of a cluster that can do something for a target.

    Raises:
        UsageError: there is no cluster at the address.
        UnavailableError: none of its nodes has what the target needs.
    """
    if not ray.is_initialized():
        try:
            ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
        except (ConnectionError, ValueError) as error:
            raise UsageError(
                f"no Ray cluster answers at {address!r} ({error}); start one with `ray start --head`, or name its "
                "address with --address."
            ) from error
    sites = [site for node in _nodes() if node["Alive"] and (site := _site(node, target, judge)) is not None]
    if not sites:
        raise UnavailableError(f"no node of the Ray cluster has a GPU for the target {target}; use another --target.")
    return sites


def _nodes() -> list[dict[str, Any]]:
    nodes: Any = ray.nodes
    return cast(list[dict[str, Any]], nodes())


def _site(node: dict[str, Any], target: Target, judge: str) -> RaySite | None:
    resources = node["Resources"]
    count = int(resources.get("GPU", 0)) if target is Target.CUDA else 1
    cores = int(resources.get("CPU", 0))
    if not count or not cores:
        return None
    return RaySite(
        node=node["NodeID"],
        name=f"{node['NodeManagerHostname']}-{node['NodeID'][:6]}",
        lanes=tuple(f"{target}:{number}" for number in range(count)),
        builders=builders_for(target, count, cores, int(resources.get("memory", 0))),
        target=target,
        judge=judge,
    )
