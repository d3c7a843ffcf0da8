"""Which folders a worker or a compiler may reach, and by which means: the sandbox's tier.

`tools.worker.sandbox` carries it out within the process, `tools.bubblewrap` around it where that works.
"""

import importlib.util
import json
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tools import bubblewrap
from tools.usage import FOLDER_LIMIT_BYTES
from tools.worker import sandbox

# Of /run only where some distributions keep drivers and programs: it also holds secrets and services' sockets.
_SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/sys", "/nix/store"),
    *("/run/opengl-driver", "/run/current-system"),
)
# Not all of /proc: /proc/PID/environ of the harness holds whatever secrets its caller has set.
_PROCESS = tuple(
    f"/proc/{name}"
    for name in ("self", "sys", "driver", "cpuinfo", "meminfo", "stat", "devices", "modules", "filesystems", "version")
)
# Not all of /dev: for root it holds the disks and the memory.
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
_SCRIPT = Path(__file__).parent / "worker" / "sandbox.py"
_PROBE_BYTES = 1 << 20


@dataclass(frozen=True)
class Confinement:
    """Folders that may be read (and executed from), and folders that may be written too."""

    read: tuple[str, ...]
    write: tuple[str, ...]

    def command(self, argv: list[str]) -> list[str]:
        """A command line that runs another one confined, by all means that this machine has."""
        confined = self.script(argv)
        if lacks_bubblewrap(gpu=False):
            return confined
        return [*bubblewrap.prefix((*self.read, str(_SCRIPT)), self.write, FOLDER_LIMIT_BYTES), *confined]

    def script(self, argv: list[str], private: Mapping[Path, int] | None = None) -> list[str]:
        """A command line that runs another one confined by the kernel's own means.

        `private` has folders that become empty file systems, of so many bytes; the caller must be allowed to mount.
        """
        folders: dict[str, object] = {"read": self.read, "write": self.write}
        if private:
            folders["private"] = {str(path): size for path, size in private.items()}
        return [sys.executable, "-I", "-S", str(_SCRIPT), json.dumps(folders), *argv]


def import_folders() -> tuple[str, ...]:
    """Where this process imports installed packages from, PyTorch among them, in its own order.

    A worker's Python is started with `-I`, which leaves out what `pip install --user` has put into the home.
    """
    torch = importlib.util.find_spec("torch")
    of_torch = None if torch is None or torch.origin is None else str(Path(torch.origin).parents[1])
    names = ("site-packages", "dist-packages")
    found = (path for path in sys.path if path == of_torch or Path(path).name in names)
    return tuple(dict.fromkeys(path for path in found if Path(path).is_dir()))


def _python() -> tuple[str, ...]:
    folders = (sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return tuple(dict.fromkeys((*folders, *import_folders())))


def for_worker(scratch: Path, read: Sequence[Path], write: Sequence[Path], *, gpu: bool = False) -> Confinement:
    """What a worker may reach: the system, Python, its private folder, and what is named besides.

    CUDA writes to its device nodes and to /proc/self/task/TID/comm. /dev/shm, where a later worker could read what an
    earlier one left, is not among them.
    """
    devices = (*_DEVICES, *(map(str, bubblewrap.gpu_devices()) if gpu else ()))
    return Confinement(
        read=(*_SYSTEM, *_PROCESS, *devices, *_python(), *map(str, read)),
        write=(str(scratch), *(devices if gpu else ("/dev/null",)), "/proc/self", *map(str, write)),
    )


def for_compiler(work: Path, read: Sequence[Path]) -> Confinement:
    """What a compiler may reach: the system, Python's and PyTorch's headers, and its private folder."""
    return Confinement(
        read=(*_SYSTEM, *_PROCESS, *_DEVICES, *_python(), *map(str, read)),
        write=(str(work), "/dev/null", "/proc/self"),
    )


@lru_cache(maxsize=2)
def lacks_bubblewrap(*, gpu: bool) -> str:
    """What keeps bubblewrap from working here, and what to do; an empty text where it works.

    Found out once, by running a program in it that is confined like a worker: on a GPU one that starts CUDA.
    """
    if shutil.which("bwrap") is None:
        return f"bubblewrap is not installed: {bubblewrap.INSTALL}"
    private = bubblewrap.SHARED_MEMORY
    reach = for_worker(private, read=[_SCRIPT], write=[], gpu=gpu)
    cuda = gpu and Path("/dev/nvidiactl").exists()
    program = [sys.executable, "-I", "-S", "-c", bubblewrap.CUDA_COMES_UP] if cuda else ["true"]
    around = bubblewrap.prefix(reach.read, reach.write, _PROBE_BYTES, gpu=gpu, mounting=True)
    return bubblewrap.why_not([*around, *reach.script(program, private={private: _PROBE_BYTES})], cuda=cuda)


def tier(*, gpu: bool) -> str:
    """The name of the means that confine workers on this machine, as it stands in every result."""
    process, *kernel = sandbox.parts()
    return "+".join([process, *(() if lacks_bubblewrap(gpu=gpu) else ("bubblewrap",)), *kernel])
