"""The light headers with what belongs to them, prepared once for each PyTorch: a stand-in for its C++ headers.

PyTorch's own headers take nvcc most of a minute. An honest candidate uses little of them: allocation, views, plain
copies, checks, streams. `tools/light/` offers just that, under the same names, and objects compiled once with PyTorch's
headers carry it out. Code that uses more does not compile against it and is built as `load_inline` would.
"""

import fcntl
import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tools import process
from tools.cache import Hold, cache_root, claimed, hold, published, workplace
from tools.confinement import for_compiler
from tools.toolchain import Toolchain
from tools.usage import compiler_budget

COMPILE_TIMEOUT_S = 300.0
_SOURCES = Path(__file__).parent / "light"
_STANDS_FOR = (
    *("torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "torch/python.h"),
    *("torch/csrc/utils/pybind.h", "pybind11/pybind11.h", "pybind11/stl.h"),
    *("ATen/ATen.h", "ATen/Functions.h", "ATen/Tensor.h", "ATen/core/Tensor.h", "ATen/core/TensorAccessor.h"),
    *("ATen/Dispatch.h", "ATen/AccumulateType.h", "ATen/OpMathType.h", "ATen/DeviceGuard.h", "ATen/ScalarType.h"),
    "ATen/TensorOptions.h",
    *("ATen/cuda/CUDAContext.h", "ATen/cuda/CUDAContextLight.h", "ATen/cuda/Exceptions.h"),
    *("c10/core/Device.h", "c10/core/DeviceGuard.h", "c10/core/ScalarType.h", "c10/core/TensorOptions.h"),
    *("c10/core/MemoryFormat.h", "c10/macros/Macros.h", "c10/util/ArrayRef.h", "c10/util/Exception.h"),
    *("c10/util/Half.h", "c10/util/BFloat16.h", "c10/util/Optional.h"),
    *("c10/cuda/CUDAException.h", "c10/cuda/CUDAFunctions.h", "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h"),
)
"""PyTorch's headers that a source may include: all are empty, because the prelude has what they would declare."""
_OBJECTS = "objects"
"""The folder in a kit that comes last, whole."""
_MAKING = "making"
"""The file in a kit that is locked by whoever makes its objects."""
_FAILED = "failed.txt"
"""What the compiler said, in place of objects that cannot be had."""
_PARTS = ("runtime", "runtime_factories", "runtime_python")
_CUDA_PART = "runtime_cuda"
_OWN_TORCH = ("c10", "torch_cpu", "torch", "torch_python")
_CUDA_TORCH = ("c10_cuda", "torch_cuda")


@dataclass(frozen=True)
class LightKit:
    """What a build against the light headers needs."""

    folder: Path
    hold: Hold
    """While it lives, nobody takes the kit away."""
    has_cuda: bool
    """Whether CUDA extensions can be built with it: there is a toolkit, and PyTorch was built with CUDA."""

    @property
    def includes(self) -> tuple[str, ...]:
        """The flags that find the light headers."""
        return "-isystem", str(self.folder / "include")

    def objects(self, *, cuda: bool) -> tuple[Path, ...]:
        """What is linked into every extension."""
        return tuple(self.folder / _OBJECTS / f"{name}.o" for name in _parts(cuda=cuda))

    def link_flags(self, *, cuda: bool) -> tuple[str, ...]:
        """Names PyTorch's libraries to the loader. Reading their symbols, as a linker does by itself, takes it longer
        than all the rest; they are in the process already, and what they lack is found when the extension is loaded."""
        names = (*_OWN_TORCH, *(_CUDA_TORCH if cuda else ()))
        wanted = (f"-l{name}" for name in names)
        return f"-L{self.folder / _OBJECTS / 'lib'}", "-Wl,--push-state,--no-as-needed", *wanted, "-Wl,--pop-state"


def light_headers(toolchain: Toolchain) -> LightKit | None:
    """The kit of a toolchain as far as compilers need it: without the objects, which only a linker asks for.

    None where it cannot be had, as far as is known by now.
    """
    if not _torch_headers(toolchain).is_dir():
        return None
    folder = _folder(toolchain)
    try:
        held = hold(folder)
        if held is None:
            with published(folder) as work:
                _write_headers(work, toolchain)
            held = hold(folder)
    except OSError:
        return None
    if held is not None and _failed(folder):
        held.close()
        return None
    return None if held is None else LightKit(folder, held, _with_cuda(toolchain))


def light_kit(toolchain: Toolchain) -> LightKit | None:
    """The kit of a toolchain; its objects are made on first use, by one process of a machine while others wait.

    That takes some 6 s of four cores. None where it cannot be had: this PyTorch lacks the few headers that are taken
    over, or its own do not compile, which is found out once.
    """
    kit = light_headers(toolchain)
    if kit is None:
        return None
    try:
        _require_objects(kit, toolchain)
        if not _failed(kit.folder):
            return kit
    except OSError:
        pass
    kit.hold.close()
    return None


def _require_objects(kit: LightKit, toolchain: Toolchain) -> None:
    objects = kit.folder / _OBJECTS
    if objects.is_dir():
        return
    # Were it made by every builder at once, as all find it missing at a cold start, each would wait for all.
    making = claimed(kit.folder / _MAKING, fcntl.LOCK_EX)
    if making is None:
        raise FileNotFoundError(f"{kit.folder} was removed")
    try:
        if not objects.is_dir():
            with workplace(kit.folder.parent) as work:
                _compile_objects(work, toolchain)
                work.rename(objects)
    finally:
        making.close()


def light_kit_state(toolchain: Toolchain) -> tuple[bool, str]:
    """Whether builds can go against the light headers, as far as is known without trying, and in words why."""
    if not _torch_headers(toolchain).is_dir():
        return False, f"PyTorch {toolchain.torch_version} has no torch/headeronly headers"
    folder = _folder(toolchain)
    if _failed(folder):
        return False, f"they do not compile with {toolchain.host_compiler}: see {folder / _OBJECTS / _FAILED}"
    return True, f"prepared in {folder}" if (folder / _OBJECTS).is_dir() else "prepared by the first build"


def _failed(folder: Path) -> bool:
    return (folder / _OBJECTS / _FAILED).exists()


def _with_cuda(toolchain: Toolchain) -> bool:
    return toolchain.cuda_home is not None and (toolchain.torch_root / "lib" / "libtorch_cuda.so").is_file()


def _parts(*, cuda: bool) -> tuple[str, ...]:
    return (*_PARTS, *((_CUDA_PART,) if cuda else ()))


def _torch_headers(toolchain: Toolchain) -> Path:
    return toolchain.torch_root / "include" / "torch" / "headeronly"


def _folder(toolchain: Toolchain) -> Path:
    return cache_root() / "light" / light_key(toolchain)


@lru_cache(maxsize=1)
def light_key(toolchain: Toolchain) -> str:
    """Changes with the light headers and with what they are compiled by."""
    files = sorted(path for path in _SOURCES.rglob("*") if path.is_file())
    identity = [
        [toolchain.host_compiler, toolchain.host_version, toolchain.torch_version, str(toolchain.torch_root)],
        [str(toolchain.cuda_home), toolchain.cuda_version],
        _STANDS_FOR,
        [[str(path.relative_to(_SOURCES)), hashlib.sha256(path.read_bytes()).hexdigest()] for path in files],
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]


def _write_headers(work: Path, toolchain: Toolchain) -> None:
    shutil.copytree(_SOURCES / "include", work / "include")
    for name in _STANDS_FOR:
        stub = work / "include" / name
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("// The light headers' prelude has what this would declare.\n")
    (work / "include" / "torch" / "headeronly").symlink_to(_torch_headers(toolchain))


def _compile_objects(work: Path, toolchain: Toolchain) -> None:
    (work / "lib").mkdir()
    commands = [_runtime(toolchain, name) for name in _parts(cuda=_with_cuda(toolchain))]
    commands += [
        ["-shared", "-nostdlib", "-x", "c++", "/dev/null", f"-Wl,-soname,lib{name}.so", "-o", f"lib/lib{name}.so"]
        for name in (*_OWN_TORCH, *_CUDA_TORCH)
        if (toolchain.torch_root / "lib" / f"lib{name}.so").is_file()
    ]
    with ThreadPoolExecutor(len(commands)) as pool:
        failures = [found for found in pool.map(lambda command: _run(toolchain, work, command), commands) if found]
    if failures:
        (work / _FAILED).write_text("\n".join(failures))


def _runtime(toolchain: Toolchain, name: str) -> list[str]:
    # All of it is calls of PyTorch's own functions, so more than -O1 would optimize nothing but takes longer.
    flags = [toolchain.host_standard, "-O1", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
    # Without the stubs: these are compiled against PyTorch's own headers, of which only what is included is parsed.
    flags += ["-DAT_PER_OPERATOR_HEADERS", f"-I{_SOURCES / 'include'}"]
    flags += [*toolchain.host_includes, *toolchain.cuda_includes]
    return [*flags, "-c", str(_SOURCES / f"{name}.cpp"), "-o", f"{name}.o"]


def _run(toolchain: Toolchain, work: Path, arguments: list[str]) -> str:
    """What the compiler said, where it failed; raises OSError where it was ended, which says nothing of next time."""
    confined = for_compiler(work, read=[_SOURCES, *toolchain.folders]).command([toolchain.host_compiler, *arguments])
    done = process.run(confined, cwd=work, timeout_s=COMPILE_TIMEOUT_S, budget=compiler_budget())
    if done.timed_out or done.over_budget or done.returncode < 0:
        raise OSError(f"{toolchain.host_compiler} was ended: {done.over_budget or done.returncode}")
    return "" if not done.returncode else f"{done.output}\nended with {done.returncode}\n"
