"""Finds the compilers: the CUDA toolkit behind whatever `nvcc` is on the path, the host compiler, PyTorch's headers."""

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from tasks.errors import UnavailableError
from tools.gpus import visible_gpus
from tools.process import scrubbed_environment

DEFAULT_ARCHITECTURE = "9.0a"
"""Compiled for when this machine has no GPU to ask: Hopper with its architecture-specific instructions."""


def _is_toolkit(root: Path) -> bool:
    return (root / "bin" / "nvcc").is_file() and any(
        (root / include / "cuda_runtime.h").is_file() for include in ("include", "targets/x86_64-linux/include")
    )


def _toolkit_of_nvcc(nvcc: str) -> Path | None:
    """Ask the compiler where its toolkit is: a wrapper script or a link on the path says nothing about it."""
    try:
        answer = subprocess.run(
            [nvcc, "--dryrun", "-x", "cu", os.devnull],
            capture_output=True,
            text=True,
            timeout=30,
            env=scrubbed_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    where = re.search(r"^#\$ _HERE_=(.+)$", answer.stderr + answer.stdout, re.MULTILINE)
    return Path(where.group(1).strip()).resolve().parent if where else None


def _wheels() -> Path:
    """Where NVIDIA's wheels put the parts of a toolkit."""
    return Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13"


@lru_cache(maxsize=1)
def find_cuda_home() -> Path | None:
    """The root of the CUDA toolkit, or None.

    Asked in this order, and the first that holds both nvcc and the runtime's headers wins: `CUDA_HOME`, `CUDA_PATH`,
    the toolkit that the `nvcc` on the path reports for itself, `/usr/local/cuda`, the toolkit of the pip wheels.
    """
    places: list[Path] = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if nvcc := shutil.which("nvcc"):
        places += [p for p in (_toolkit_of_nvcc(nvcc), Path(nvcc).resolve().parent.parent) if p is not None]
    places.append(Path("/usr/local/cuda"))
    places.append(_wheels())
    return next((place for place in places if _is_toolkit(place)), None)


@lru_cache(maxsize=1)
def nvcc_version() -> str:
    """The version of the CUDA compiler such as `13.0.88`, or an empty text where there is none."""
    home = find_cuda_home()
    if home is None:
        return ""
    answer = subprocess.run([str(home / "bin" / "nvcc"), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"V(\d+\.\d+\.\d+)", answer.stdout)
    return found.group(1) if found else ""


def find_sanitizer() -> Path | None:
    """NVIDIA's compute-sanitizer: the one on the path, else of the CUDA toolkit, else of the pip wheels; or None."""
    return _find_tool("compute-sanitizer", ("bin", "compute-sanitizer"))


def find_cuobjdump() -> Path | None:
    """NVIDIA's cuobjdump: the one on the path, else of the CUDA toolkit, of the pip wheels, or of Triton; or None."""
    if found := _find_tool("cuobjdump", ("bin",)):
        return found
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        return None
    place = Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return place if _is_program(place) else None


def find_ncu() -> Path | None:
    """NVIDIA's Nsight Compute, `ncu`: the one on the path, of the CUDA toolkit, or the newest of its own; or None."""
    if found := _find_tool("ncu", ("bin",)):
        return found
    installed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), key=_version_in)
    return next((place for place in reversed(installed) if _is_program(place)), None)


def _version_in(path: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", path.parent.name)))


def _find_tool(name: str, folders: tuple[str, ...]) -> Path | None:
    if found := shutil.which(name):
        return Path(found)
    homes = [Path(os.environ[key]) for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    homes += [home for home in (find_cuda_home(), _wheels()) if home is not None]
    places = (home / folder / name for home in homes for folder in folders)
    return next((place for place in places if _is_program(place)), None)


def _is_program(path: Path) -> bool:
    return os.access(path, os.X_OK) and path.is_file()


def find_host_compiler() -> str | None:
    """The C++ compiler that builds host code: `CXX` where it is set, else `g++`, `c++` or `clang++`."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")):
        if found := shutil.which(name):
            return found
    return None


@dataclass(frozen=True)
class Toolchain:
    """Everything that a build's commands depend on; two equal toolchains build the same."""

    host_compiler: str
    host_version: str
    torch_version: str
    torch_root: Path
    cuda_home: Path | None
    cuda_version: str
    architecture: str
    """Compute capability to build for, such as `9.0a`."""

    @cached_property
    def host_standard(self) -> str:
        """The C++ standard that `load_inline` of this PyTorch asks for: C++20 since 2.13."""
        major, minor = (int(part) for part in self.torch_version.split(".")[:2])
        return "-std=c++20" if (major, minor) >= (2, 13) else "-std=c++17"

    @cached_property
    def host_includes(self) -> tuple[str, ...]:
        """The `-isystem` flags of PyTorch and Python, as `load_inline` gives them."""
        torch = self.torch_root / "include"
        folders = [torch, torch / "torch" / "csrc" / "api" / "include"]
        return (*(part for folder in folders for part in ("-isystem", str(folder))), *self.python_includes)

    @cached_property
    def python_includes(self) -> tuple[str, ...]:
        """The `-isystem` flag of Python."""
        return "-isystem", sysconfig.get_path("include")

    @cached_property
    def cuda_includes(self) -> tuple[str, ...]:
        """The `-isystem` flags of the CUDA toolkit; none where there is no toolkit."""
        return () if self.cuda_home is None else ("-isystem", str(self.cuda_home / "include"))

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """What the compilers must be able to read, wherever they are installed; not all of a home that holds a bin."""
        programs = Path(self.host_compiler).resolve().parent
        host = (programs, *(programs.parent / name for name in ("lib", "lib64", "libexec", "include")))
        return (*host, self.torch_root, *(() if self.cuda_home is None else (self.cuda_home,)))

    @cached_property
    def nvcc(self) -> str:
        """The CUDA compiler.

        Raises:
            UnavailableError: there is no CUDA toolkit on this machine.
        """
        if self.cuda_home is None:
            raise UnavailableError(
                "no CUDA toolkit was found, so CUDA sources cannot be compiled here. Install one, or set CUDA_HOME to "
                "the folder that holds bin/nvcc, and see `kernelwright doctor`; or use --target cpu."
            )
        return str(self.cuda_home / "bin" / "nvcc")


def _architecture() -> str:
    """The present GPU's capability; Hopper and later with the suffix that unlocks wgmma and setmaxnreg."""
    # Not asked of PyTorch, which would make a context on the GPU in every process that only builds.
    gpus = visible_gpus()
    if not gpus:
        return DEFAULT_ARCHITECTURE
    major, minor = gpus[0].capability
    return f"{major}.{minor}a" if major >= 9 else f"{major}.{minor}"


def _torch_root() -> Path:
    """Where PyTorch is installed. It is not imported, which takes seconds that a compiler could use."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise UnavailableError("PyTorch was not found; install torch into this Python.")
    return Path(found.origin).parent


@lru_cache(maxsize=1)
def find_toolchain() -> Toolchain:
    """The toolchain of this machine.

    Raises:
        UnavailableError: there is no C++ compiler, or no PyTorch.
    """
    compiler = find_host_compiler()
    if compiler is None:
        raise UnavailableError("no C++ compiler was found; install g++ (Debian: apt-get install g++) or set CXX.")
    torch = _torch_root()
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    return Toolchain(
        host_compiler=compiler,
        host_version=version.splitlines()[0] if version else "",
        torch_version=str(runpy.run_path(str(torch / "version.py"))["__version__"]),
        torch_root=torch,
        cuda_home=find_cuda_home(),
        cuda_version=nvcc_version(),
        architecture=_architecture(),
    )
