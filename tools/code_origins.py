"""Whose code an instruction of a worker is: the candidate's own, the runtime's, PyTorch's, another library's.

Files are told apart by device and inode, and only those that a worker had mapped before it had a candidate, or that lie
beside them, are known. A page that differs from its file is nobody's: a candidate may write to its own copy of it.

NOT told apart: the candidate's source and a library's code that was built into its extension.
"""

import contextlib
import os
import re
import sysconfig
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tools.demangling import demangled
from tools.elf_functions import functions_of
from tools.mappings import MappedFile, Mappings, as_mapped
from tools.mappings import Mapping as Range
from tools.pytorch_functions import computes

_COMPARED_BYTES = 64
_LONGEST_NAME = 100
_RUNTIME = re.compile(
    r"(?:python[\d.]*|libpython[\d.]*|ld-linux|ld-musl|ld|libc|libm|libmvec|libpthread|librt|libdl|libutil|libgcc_s|libstdc\+\+"
    r"|libc\+\+|libatomic|libffi|libz|liblzma|libbz2|libcrypto|libssl|libexpat)(?:[-.]|$)"
)
"""C and C++, and what Python's own modules need. Its `expf` or `memcpy` is as good as one's own."""
_WAITING = re.compile(r"(?:libgomp|libomp|libiomp5)(?:[-.\d]|$)")
_BESIDE_LIBC = (
    *("libm", "libmvec", "libpthread", "librt", "libatomic", "libgomp", "libgcc_s", "libstdc++", "libcrypto", "libssl"),
    *("libz", "libffi", "liblzma", "libbz2", "libomp", "libc++", "libc++abi", "libexpat"),
)
_KERNELS_OWN = frozenset({"[vdso]", "[vsyscall]"})
_PYTORCHS_CORE = re.compile(r"libtorch_cpu\.")


class Origin(StrEnum):
    """Whose code it is."""

    OWN = "own"
    RUNTIME = "runtime"
    WAITING = "waiting"
    """OpenMP's own code: threads that have nothing to do spin there."""
    PYTORCH = "pytorch"
    """Allocation, moving and dispatch."""
    COMPUTING = "computing"
    """A kernel of PyTorch's that is more than a copy."""
    LIBRARY = "library"
    GENERATED = "generated"
    """Executable memory of no file, or code that is not in its file."""


class Place(NamedTuple):
    """Where an instruction lies."""

    origin: Origin
    name: str
    """For a person: the library, and of PyTorch's the function."""


class Origins:
    """What files of one worker are, from before it had a candidate."""

    def __init__(self, pid: int) -> None:
        """Raises OSError where the process cannot be looked at."""
        before = {each.file: Path(each.path) for each in Mappings(pid).all if each.file is not None}
        self._files = dict(_beside(next((p.parent for p in before.values() if p.name.startswith("libc.")), Path("/"))))
        self._files |= before
        core = next((path for path in before.values() if _PYTORCHS_CORE.match(path.name)), None)
        self._pytorch = None if core is None else core.parents[1]
        self._standard = Path(sysconfig.get_path("stdlib"))

    def place(self, pid: int, address: int, mappings: Mappings, own: Mapping[MappedFile, Path]) -> Place | None:
        """Where an address of a stopped process lies; None where it lies nowhere, because the process is ending.

        Args:
            pid: the process.
            address: of an instruction.
            mappings: of the process, since it was stopped.
            own: libraries that were built for the candidate, each with a file that has its content.
        """
        found = mappings.at(address)
        if found is None:
            return None
        if found.file is None:
            if found.path in _KERNELS_OWN:
                return Place(Origin.RUNTIME, found.path)
            return Place(Origin.GENERATED, "code that was generated while it ran (as oneDNN and JIT compilers do)")
        file = own.get(found.file) or self._files.get(found.file)
        if file is None:
            return Place(Origin.LIBRARY, f"{Path(found.path).name[:_LONGEST_NAME]} (an unknown file)")
        if not _as_in_file(pid, address, found, file):
            return Place(Origin.GENERATED, "code that was written over a library's")
        if found.file in own:
            return Place(Origin.OWN, "the candidate's extension")
        return self._of_known(file, address - found.start + found.offset)

    def _of_known(self, file: Path, offset: int) -> Place:
        if _WAITING.match(file.name):
            return Place(Origin.WAITING, file.name)
        if _RUNTIME.match(file.name) or (self._standard in file.parents and "site-packages" not in file.parts):
            return Place(Origin.RUNTIME, file.name)
        if self._pytorch is None or self._pytorch not in file.parents:
            return Place(Origin.LIBRARY, file.name)
        function = functions_of(file).at(offset) if _PYTORCHS_CORE.match(file.name) else ""
        if not computes(function):
            return Place(Origin.PYTORCH, file.name)
        return Place(Origin.COMPUTING, f"{file.name}'s {_short(function)}")


def _short(function: str) -> str:
    """The part of a mangled name that people know, such as `addcmul_cpu_kernel`: templates make whole pages of it."""
    kernel = re.search(r"[a-z][a-z_]*_kernel", function)
    return kernel[0] if kernel else demangled(function)[:_LONGEST_NAME]


def _as_in_file(pid: int, address: int, found: Range, file: Path) -> bool:
    """Whether what the processor reads there is what stands in the file; it is, where that cannot be read."""
    start = max(found.start, address - _COMPARED_BYTES // 2)
    size = min(found.end - start, _COMPARED_BYTES)
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        there = os.pread(memory.fileno(), size, start)
        with file.open("rb") as kept:
            # The last page of a file is filled up with zeros.
            expected = os.pread(kept.fileno(), size, start - found.start + found.offset).ljust(len(there), b"\0")
        return there == expected
    return True


@lru_cache(maxsize=4)
def _beside(folder: Path) -> tuple[tuple[MappedFile, Path], ...]:
    """Libraries of the runtime that a candidate may be the first to load."""
    wanted: Iterable[Path] = (path for name in _BESIDE_LIBC for path in folder.glob(f"{name}.so*"))
    extensions = Path(sysconfig.get_path("stdlib")) / "lib-dynload"
    return tuple(as_mapped([*wanted, *extensions.glob("*.so")]).items())
