"""The engines of the evaluation pool, by name: this machine, or a Ray cluster."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from tasks.errors import UsageError
from tasks.target import Target

if TYPE_CHECKING:
    from tools.pool_queue import Site


class Engine(StrEnum):
    """Where the processes of a pool run."""

    LOCAL = "local"
    RAY = "ray"


def sites(engine: Engine, address: str, target: Target, progress: Callable[[str], None]) -> "Sequence[Site]":
    """The machines of an engine.

    Args:
        engine: which.
        address: of the Ray cluster; only for that engine.
        target: of the jobs.
        progress: as of `local_site`.

    Raises:
        UsageError: Ray is not installed, or there is no cluster at the address.
        UnavailableError: the cluster has no machine for the target.
    """
    # The command line needs the names of the engines only, and starts without what they need.
    if engine is Engine.LOCAL:
        from tools.local_site import local_site

        return [local_site(target, progress)]
    try:
        from tools.ray_sites import ray_sites
    except ImportError as error:
        raise UsageError(
            f"the engine ray needs Ray ({error}); install it from the checkout: pip install -e '.[ray]'"
        ) from error
    return ray_sites(address, target)
