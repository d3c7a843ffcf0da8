"""How many builders a machine has beside its lanes, and what each of them may take."""

import pytest

from tasks.spec import Target
from tools.local_site import builders_for, member_environment
from tools.usage import MEMORY_VARIABLE, host_memory_bytes, memory_limit_bytes


def test_builders_share_the_memory() -> None:
    """Several candidates that take all they can get would have the kernel kill judges; a lane has no more than one."""
    whole = host_memory_bytes()
    assert int(member_environment("builder", 4)[MEMORY_VARIABLE]) == whole // 4
    assert MEMORY_VARIABLE not in member_environment("lane", 4)


def test_a_share_of_the_memory_is_what_workers_are_bounded_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, str(1 << 30))
    assert (host_memory_bytes(), memory_limit_bytes()) == (1 << 30, 3 << 28)


@pytest.mark.parametrize(
    ("target", "lanes", "cores", "gigabytes", "builders"),
    [
        (Target.CUDA, 1, 16, 128, 14),
        (Target.CUDA, 8, 16, 512, 1),
        (Target.CUDA, 1, 64, 30, 10),
        (Target.CPU, 1, 2, 24, 2),
    ],
)
def test_lanes_with_a_gpu_have_cores_to_themselves_and_each_build_has_memory(
    target: Target, lanes: int, cores: int, gigabytes: int, builders: int
) -> None:
    assert builders_for(target, lanes, cores, gigabytes << 30) == builders
