"""Which folders a worker or a compiler may reach; `tools.worker.sandbox` carries it out."""

import json
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/run", "/sys", "/dev")
# Not all of /proc: /proc/PID/environ of the harness holds whatever secrets its caller has set.
_PROCESS = tuple(
    f"/proc/{name}"
    for name in ("self", "sys", "driver", "cpuinfo", "meminfo", "stat", "devices", "modules", "filesystems", "version")
)
_SCRIPT = Path(__file__).parent / "worker" / "sandbox.py"


@dataclass(frozen=True)
class Confinement:
    """Folders that may be read (and executed from), and folders that may be written too."""

    read: tuple[str, ...]
    write: tuple[str, ...]

    def command(self, argv: list[str]) -> list[str]:
        """A command line that runs another one confined."""
        folders = json.dumps({"read": self.read, "write": self.write})
        return [sys.executable, "-I", "-S", str(_SCRIPT), folders, *argv]


def _python() -> tuple[str, ...]:
    folders = (sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return tuple(dict.fromkeys(folders))


def for_worker(scratch: Path, read: Sequence[Path], write: Sequence[Path], *, gpu: bool = False) -> Confinement:
    """What a worker may reach: the system, Python, its private folder, and what is named besides.

    CUDA writes to its device nodes, to /proc/self/task/TID/comm and to /dev/shm, where a later worker could read it.
    """
    return Confinement(
        read=(*_SYSTEM, *_PROCESS, *_python(), *map(str, read)),
        write=(str(scratch), "/dev" if gpu else "/dev/null", "/proc/self", *map(str, write)),
    )


def for_compiler(work: Path, read: Sequence[Path]) -> Confinement:
    """What a compiler may reach: the system, Python's and PyTorch's headers, and its private folder."""
    return Confinement(
        read=(*_SYSTEM, *_PROCESS, *_python(), *map(str, read)), write=(str(work), "/dev/null", "/proc/self")
    )
