"""The ways to confine a process that this machine has, for tests that must hold in each."""

from collections.abc import Callable
from functools import lru_cache

import pytest

from tools import bubblewrap, confinement
from tools.confinement import Confinement
from tools.worker.sandbox import landlock_version

Tier = Callable[[Confinement, list[str]], list[str]]
"""Makes the command line that runs another one confined."""
_SHARED_BYTES = 1 << 20
_LACKS = confinement.lacks_bubblewrap(gpu=False)

needs_landlock = pytest.mark.skipif(landlock_version() < 6, reason="needs a kernel with Landlock ABI 6 or later")
needs_bubblewrap = pytest.mark.skipif(bool(_LACKS), reason=_LACKS)


@lru_cache
def without_bubblewrap(*, gpu: bool) -> str:
    """Stands for `lacks_bubblewrap` where a test is about the other means."""
    return f"bubblewrap is not used in this test, gpu={gpu}"


def by_the_kernel(reach: Confinement, argv: list[str]) -> list[str]:
    """Landlock and seccomp."""
    return reach.script(argv)


def by_namespaces(reach: Confinement, argv: list[str]) -> list[str]:
    """Bubblewrap alone, as on a kernel without Landlock."""
    return [*bubblewrap.prefix(reach.read, reach.write, _SHARED_BYTES), *argv]


def by_all(reach: Confinement, argv: list[str]) -> list[str]:
    """Whatever this machine has, as in use."""
    return reach.command(argv)


TIERS = [
    pytest.param(by_the_kernel, marks=needs_landlock, id="kernel"),
    pytest.param(by_namespaces, marks=needs_bubblewrap, id="namespaces"),
    pytest.param(by_all, marks=needs_landlock, id="all"),
]
