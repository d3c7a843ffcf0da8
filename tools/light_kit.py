"""The light headers with what belongs to them, prepared once for each PyTorch: a stand-in for its C++ headers.

PyTorch's own headers take nvcc most of a minute. An honest candidate uses little of them: allocation, views, plain
copies, checks, streams. `tools/light/` offers just that, under the same names, and objects compiled once with PyTorch's
headers carry it out. Code that uses more does not compile against it and is built as `load_inline` would.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools import process
from tools.cache import Hold, cache_root, hold, published
from tools.confinement import for_compiler
from tools.toolchain import Toolchain
from tools.usage import compiler_budget

COMPILE_TIMEOUT_S = 300.0
_SOURCES = Path(__file__).parent / "light"
_STANDS_FOR = (
    *("torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "torch/python.h"),
    *("torch/csrc/utils/pybind.h", "pybind11/pybind11.h", "pybind11/stl.h"),
    *(
        "ATen/ATen.h",
        "ATen/Functions.h",
        "ATen/Tensor.h",
        "ATen/core/Tensor.h",
        "ATen/Dispatch.h",
        "ATen/OpMathType.h",
        "ATen/AccumulateType.h",
    ),
    *(
        "ATen/AccumulateType.h",
        "ATen/core/TensorAccessor.h",
        "ATen/TensorOptions.h",
        "ATen/ScalarType.h",
        "ATen/DeviceGuard.h",
    ),
    *("ATen/cuda/CUDAContext.h", "ATen/cuda/CUDAContextLight.h", "ATen/cuda/Exceptions.h"),
    *("c10/core/Device.h", "c10/core/DeviceGuard.h", "c10/core/ScalarType.h", "c10/core/TensorOptions.h"),
    *("c10/core/MemoryFormat.h", "c10/macros/Macros.h", "c10/util/ArrayRef.h", "c10/util/Exception.h"),
    *("c10/util/Half.h", "c10/util/BFloat16.h", "c10/util/Optional.h"),
    *("c10/cuda/CUDAException.h", "c10/cuda/CUDAFunctions.h", "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h"),
)
"""PyTorch's headers that a source may include: all are empty, because the prelude has what they would declare."""
_OWN_TORCH = ("c10", "torch_cpu", "torch", "torch_python")
_CUDA_TORCH = ("c10_cuda", "torch_cuda")


@dataclass(frozen=True)
class LightKit:
    """What a build against the light headers needs."""

    folder: Path
    hold: Hold
    """While it lives, nobody takes the kit away."""

    @property
    def has_cuda(self) -> bool:
        """Whether CUDA extensions can be built with it: there is a toolkit, and PyTorch was built with CUDA."""
        return (self.folder / "runtime_cuda.o").is_file()

    @property
    def includes(self) -> tuple[str, ...]:
        """The flags that find the light headers."""
        return "-isystem", str(self.folder / "include")

    def objects(self, *, cuda: bool) -> tuple[Path, ...]:
        """What is linked into every extension."""
        names = ("runtime.o", "runtime_cuda.o") if cuda else ("runtime.o",)
        return tuple(self.folder / name for name in names)

    def link_flags(self, *, cuda: bool) -> tuple[str, ...]:
        """Names PyTorch's libraries to the loader. Reading their symbols, as a linker does by itself, takes it longer
        than all the rest; they are in the process already, and what they lack is found when the extension is loaded."""
        names = (*_OWN_TORCH, *(_CUDA_TORCH if cuda else ()))
        wanted = (f"-l{name}" for name in names)
        return f"-L{self.folder / 'lib'}", "-Wl,--push-state,--no-as-needed", *wanted, "-Wl,--pop-state"


def light_kit(toolchain: Toolchain) -> LightKit | None:
    """The kit of a toolchain; made on first use, which takes half a minute.

    None where it cannot be had: this PyTorch lacks the few headers that are taken over, or its own do not compile.
    """
    torch_headers = toolchain.torch_root / "include" / "torch" / "headeronly"
    if not torch_headers.is_dir():
        return None
    folder = cache_root() / "light" / _key(toolchain)
    try:
        held = hold(folder)
        if held is None:
            with published(folder) as work:
                _fill(work, toolchain, torch_headers)
            held = hold(folder)
    except (_UnusableToolchainError, OSError):
        return None
    return None if held is None else LightKit(folder, held)


class _UnusableToolchainError(Exception):
    """Something of the kit does not compile; leaving the block by an exception is what publishes nothing."""


def _key(toolchain: Toolchain) -> str:
    files = sorted(path for path in _SOURCES.rglob("*") if path.is_file())
    identity = [
        [toolchain.host_compiler, toolchain.host_version, toolchain.torch_version, str(toolchain.torch_root)],
        [str(toolchain.cuda_home), toolchain.cuda_version],
        _STANDS_FOR,
        [[str(path.relative_to(_SOURCES)), hashlib.sha256(path.read_bytes()).hexdigest()] for path in files],
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]


def _fill(work: Path, toolchain: Toolchain, torch_headers: Path) -> None:
    shutil.copytree(_SOURCES / "include", work / "include")
    for name in _STANDS_FOR:
        stub = work / "include" / name
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("// The light headers' prelude has what this would declare.\n")
    (work / "include" / "torch" / "headeronly").symlink_to(torch_headers)
    flags = [toolchain.host_standard, "-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
    # Without the stubs: these are compiled against PyTorch's own headers.
    flags += [f"-I{_SOURCES / 'include'}", *toolchain.host_includes, *toolchain.cuda_includes]
    with_cuda = toolchain.cuda_home is not None and (toolchain.torch_root / "lib" / "libtorch_cuda.so").is_file()
    for name in ("runtime.cpp", "runtime_cuda.cpp") if with_cuda else ("runtime.cpp",):
        shutil.copy(_SOURCES / name, work / name)
        _run(toolchain, work, [*flags, "-c", name, "-o", Path(name).with_suffix(".o").name])
        (work / name).unlink()
    (work / "lib").mkdir()
    for name in (*_OWN_TORCH, *_CUDA_TORCH):
        if (toolchain.torch_root / "lib" / f"lib{name}.so").is_file():
            stand_in = ["-shared", "-nostdlib", "-x", "c++", "/dev/null", f"-Wl,-soname,lib{name}.so"]
            _run(toolchain, work, [*stand_in, "-o", f"lib/lib{name}.so"])


def _run(toolchain: Toolchain, work: Path, arguments: list[str]) -> None:
    confined = for_compiler(work, read=[_SOURCES, *toolchain.folders]).command([toolchain.host_compiler, *arguments])
    done = process.run(confined, cwd=work, timeout_s=COMPILE_TIMEOUT_S, budget=compiler_budget())
    if done.returncode:
        raise _UnusableToolchainError
