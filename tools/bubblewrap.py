"""Namespaces of their own for workers and compilers, made by bubblewrap where it is installed and works.

Inside, nothing exists but what a `Confinement` names: no other folder, no socket of a service, no other process.
Networks, IPC and host names are private. The rules of `tools.worker.sandbox` stand on top, within.

On a GPU only the folders, devices and the host's name are private: the driver's inter-process memory handles are
opened through process numbers, and through abstract sockets, which belong to a network namespace; there the network is
refused by seccomp and Landlock alone.
"""

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.process import scrubbed_environment

_PROBE_TIMEOUT_S = 60.0
_ONLY_WITHOUT_GPU = ("--unshare-pid", "--unshare-net", "--unshare-ipc")
SHARED_MEMORY = Path("/dev/shm")
CUDA_COMES_UP = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap)"
ALLOW = (
    "allow it user namespaces (Ubuntu 23.10 and later: an AppArmor profile for bwrap that allows userns, or sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container: a seccomp profile that allows unshare and mount)"
)


def gpu_devices() -> tuple[Path, ...]:
    """The device nodes of GPUs and their driver on this machine; no disk, no memory, nothing else of /dev."""
    patterns = ("nvidia*", "nvmap", "nvhost*", "nvgpu*", "dri", "dxg")
    return tuple(sorted(path for pattern in patterns for path in Path("/dev").glob(pattern)))


def prefix(
    read: Iterable[str], write: Iterable[str], shared_memory_bytes: int, *, gpu: bool = False, mounting: bool = False
) -> list[str]:
    """What to put before a command line to run it in namespaces of its own, with these folders and devices.

    With `mounting` the program may mount within its own namespaces, for `tools.worker.sandbox.mount_private`.
    """
    program = shutil.which("bwrap") or "bwrap"
    argv = [program, "--unshare-user", "--unshare-uts", "--unshare-cgroup-try", *(() if gpu else _ONLY_WITHOUT_GPU)]
    argv += ["--cap-drop", "ALL", *(("--cap-add", "CAP_SYS_ADMIN") if mounting else ())]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for device in gpu_devices() if gpu else ():
        argv += ["--dev-bind-try", str(device), str(device)]
    argv += ["--size", str(shared_memory_bytes), "--tmpfs", str(SHARED_MEMORY)]
    folders = dict.fromkeys(_as_given_and_resolved(read), "--ro-bind-try")
    folders |= dict.fromkeys(_as_given_and_resolved(write), "--bind-try")
    # A folder that is bound later hides what was bound below it before.
    for path in sorted(folders, key=lambda path: len(path.parts)):
        argv += [folders[path], str(path), str(path)]
    return [*argv, "--remount-ro", "/dev", "--remount-ro", "/", "--"]


def _as_given_and_resolved(paths: Iterable[str]) -> set[Path]:
    """A link's own path and where it leads, as both are in use; /proc and /dev are made anew."""
    given = [Path(path) for path in paths if not path.startswith(("/proc", "/dev"))]
    return {found for path in given for found in (path, path.resolve()) if found != Path("/")}


def why_not(argv: Sequence[str], *, cuda: bool) -> str:
    """Run a command line that `prefix` begins; what keeps it from working, and what to do, or an empty text.

    With `cuda` the command line is to end in `CUDA_COMES_UP`, which a refusal of namespaces does not explain.
    """
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            env=scrubbed_environment(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap is installed but cannot be run ({error}): {ALLOW}"
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if cuda:
        return f"bubblewrap is installed but CUDA does not come up inside it ({said}): {ALLOW}"
    return f"bubblewrap is installed but does not work ({said}): {ALLOW}"
