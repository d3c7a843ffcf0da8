"""Examines this machine: what it can do for Kernelwright, what is missing, and how to fix it."""

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tasks.errors import KernelwrightError
from tasks.record import Record
from tasks.spec import Target
from tools.cache import cache_limit_bytes, cache_root
from tools.confinement import tier
from tools.light_kit import light_kit_state
from tools.process import run
from tools.required_sandbox import missing_parts
from tools.toolchain import (
    find_cuda_home,
    find_cuobjdump,
    find_host_compiler,
    find_ncu,
    find_sanitizer,
    find_toolchain,
    nvcc_version,
)

_TOOLKIT = "install all of the CUDA toolkit"
_BOTH = (Target.CUDA, Target.CPU)
_KEY_NAMES = ("KERNELWRIGHT_API_KEY", "OPENAI_API_KEY")
_NEEDED_BYTES = 2 * 2**30
"""Precompiled headers take some hundred megabytes each, built extensions a few."""


class Finding(Record):
    """One thing that was looked for."""

    check: str
    status: Literal["ok", "missing", "note"]
    """`note`: nothing that a target needs."""
    found: str
    remedy: str = ""
    """What to do; empty where nothing needs doing."""
    needed_by: tuple[Target, ...] = ()
    """The targets that do not work without it."""


class Report(Record):
    """Everything that was looked for."""

    findings: tuple[Finding, ...]

    def works(self, target: Target) -> bool:
        """Whether everything that a target needs is there."""
        return not self.lacks(target)

    def lacks(self, target: Target) -> tuple[str, ...]:
        """The checks that keep a target from working."""
        return tuple(f.check for f in self.findings if f.status == "missing" and target in f.needed_by)


def examine() -> Report:
    """Look at everything; takes a few seconds, most of them to import PyTorch."""
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        _torch,
        _host_compiler,
        _python_headers,
        _gpu,
        _cuda_compiler,
        _sandbox,
        _cache,
        _light_headers,
        _cores,
        _memory,
        lambda: _optional_tool("ncu", find_ncu(), "`profile` takes hardware counters from it", _TOOLKIT),
        lambda: _optional_tool("cuobjdump", find_cuobjdump(), "`disassemble` reads kernels with it", _TOOLKIT),
        lambda: _optional_tool(
            "compute-sanitizer",
            find_sanitizer(),
            "`sanitize`, `submit` and `score --strict` find errors with it that outputs do not show",
            f"{_TOOLKIT}, or 'nvidia-cuda-sanitizer-api>=13.5' with pip",
        ),
        _api_key,
    )
    return Report(findings=tuple(check() for check in checks))


def _python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}"
    return Finding(check="Python", status="ok", found=found, needed_by=_BOTH)


def _torch() -> Finding:
    if importlib.util.find_spec("torch") is None:
        remedy = f"{sys.executable} -m pip install 'torch>=2.11'"
        return Finding(check="PyTorch", status="missing", found="not installed", remedy=remedy, needed_by=_BOTH)
    import torch

    built_for = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    return Finding(check="PyTorch", status="ok", found=f"{torch.__version__}, {built_for}", needed_by=_BOTH)


def _host_compiler() -> Finding:
    compiler = find_host_compiler()
    if compiler is None:
        remedy = "install g++ (Debian: apt-get install g++), or set CXX"
        return Finding(check="C++ compiler", status="missing", found="none", remedy=remedy, needed_by=_BOTH)
    with tempfile.TemporaryDirectory() as folder:
        completed = run([compiler, "--version"], cwd=Path(folder), timeout_s=30)
    first_line = completed.output.splitlines()[0] if completed.output else "version unknown"
    return Finding(check="C++ compiler", status="ok", found=f"{compiler}: {first_line}", needed_by=_BOTH)


def _python_headers() -> Finding:
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        remedy = "install Python's development headers (Debian: apt-get install python3-dev)"
        return Finding(check="Python headers", status="missing", found=f"no {header}", remedy=remedy, needed_by=_BOTH)
    return Finding(check="Python headers", status="ok", found=str(header), needed_by=_BOTH)


def _gpu() -> Finding:
    """The GPU that PyTorch would use, or why it would use none."""

    def none(why: str, remedy: str) -> Finding:
        return Finding(check="GPU", status="missing", found=f"none: {why}", remedy=remedy, needed_by=(Target.CUDA,))

    if importlib.util.find_spec("torch") is None:
        return none("PyTorch is not installed", "install PyTorch first")
    import torch

    if torch.version.cuda is None:
        return none("this PyTorch is built without CUDA", "install a CUDA build of PyTorch, see pytorch.org")
    if not Path("/proc/driver/nvidia/version").is_file() and shutil.which("nvidia-smi") is None:
        return none("no NVIDIA driver", "use a machine with an NVIDIA GPU and its driver, or --target cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        why = "; ".join(str(warning.message).splitlines()[0] for warning in caught)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            return none(f"CUDA_VISIBLE_DEVICES is {visible!r}", "unset CUDA_VISIBLE_DEVICES, or name a GPU in it")
        return none(why or "PyTorch sees no device", "compare `nvidia-smi` with the CUDA version of PyTorch above")
    major, minor = torch.cuda.get_device_capability()
    count = torch.cuda.device_count()
    found = f"{torch.cuda.get_device_name()}, capability {major}.{minor}, driver {_driver()}, {count} visible"
    return Finding(check="GPU", status="ok", found=found, needed_by=(Target.CUDA,))


def _driver() -> str:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return "unknown"
    with tempfile.TemporaryDirectory() as folder:
        query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        completed = run(query, cwd=Path(folder), timeout_s=30)
    return completed.output.splitlines()[0].strip() if completed.returncode == 0 and completed.output else "unknown"


def _cuda_compiler() -> Finding:
    home = find_cuda_home()
    if home is None:
        remedy = "install the CUDA toolkit of PyTorch's version, or set CUDA_HOME to the folder that holds bin/nvcc"
        return Finding(check="CUDA compiler", status="missing", found="none", remedy=remedy, needed_by=(Target.CUDA,))
    version = nvcc_version()
    on_path = shutil.which("nvcc")
    wrapper = f", through {on_path}" if on_path and Path(on_path).resolve().parent.parent != home else ""
    found = f"{version or 'version unknown'} in {home}{wrapper}"
    wanted = _cuda_of_torch()
    if wanted and version and version.split(".")[0] != wanted.split(".")[0]:
        remedy = f"PyTorch is built for CUDA {wanted} and refuses another major version: install a toolkit {wanted}"
        return Finding(check="CUDA compiler", status="missing", found=found, remedy=remedy, needed_by=(Target.CUDA,))
    return Finding(check="CUDA compiler", status="ok", found=found, needed_by=(Target.CUDA,))


def _cuda_of_torch() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch.version.cuda


def _cache() -> Finding:
    try:
        root, limit_bytes = cache_root(), cache_limit_bytes()
    except KernelwrightError as error:
        return Finding(
            check="cache", status="missing", found=str(error), remedy="set KERNELWRIGHT_CACHE", needed_by=_BOTH
        )
    free = shutil.disk_usage(root).free
    found = f"{root}, at most {limit_bytes / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free"
    if free < _NEEDED_BYTES:
        remedy = "free some space, or set KERNELWRIGHT_CACHE to a folder elsewhere"
        return Finding(check="cache", status="note", found=found, remedy=remedy)
    return Finding(check="cache", status="ok", found=found, needed_by=_BOTH)


def _light_headers() -> Finding:
    try:
        works, found = light_kit_state(find_toolchain())
    except (KernelwrightError, ImportError) as error:
        return Finding(check="light headers", status="note", found=f"not known: {error}")
    remedy = "" if works else "builds take most of a minute instead of seconds; use another PyTorch or host compiler"
    return Finding(check="light headers", status="ok" if works else "note", found=found, remedy=remedy)


def _cores() -> Finding:
    return Finding(check="cores", status="ok", found=f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}")


def _memory() -> Finding:
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Finding(check="memory", status="ok", found=f"{pages * page / 2**30:.1f} GiB")


def _optional_tool(name: str, path: Path | None, purpose: str, remedy: str) -> Finding:
    if path is None:
        return Finding(check=name, status="note", found=f"not found ({purpose}); optional", remedy=remedy)
    return Finding(check=name, status="ok", found=str(path))


def _sandbox() -> Finding:
    """The tier that workers and compilers run in; its name stands in every result."""
    gpu = Path("/dev/nvidiactl").exists()
    missing = missing_parts(gpu=gpu)
    if not missing:
        return Finding(check="sandbox", status="ok", found=tier(gpu=gpu))
    found = f"{tier(gpu=gpu)}; lacks {' and '.join(missing)}"
    if "landlock" in missing and "bubblewrap" in missing:
        found += ", so files and network stay within a candidate's reach: use a container for those you do not trust"
    remedy = "; ".join(f"{part}: {what}" for part, what in missing.items())
    return Finding(check="sandbox", status="note", found=found, remedy=remedy)


def _api_key() -> Finding:
    """Whether there is a key for a model's server; its value is never read out."""
    names = [name for name in _KEY_NAMES if os.environ.get(name)]
    if names:
        return Finding(check="API key", status="ok", found=f"{' and '.join(names)} set")
    return Finding(
        check="API key",
        status="note",
        found=f"neither {' nor '.join(_KEY_NAMES)} is set: `run` uses a recorded model",
        remedy="set one to have a model work; or name a server of your own with --base-url",
    )
