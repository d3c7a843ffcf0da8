"""Compares the machine code of the kernels in two libraries, instruction by instruction.

Equal instructions give equal bits, so this shows without a GPU that two builds of one source answer alike. Names are
compared without what a compiler makes of a file's name (anonymous namespaces), and the slots of constant bank 4, where
it keeps addresses of variables, without their offsets: headers that one build sees and the other doesn't move them.
NOT compared: the values of `__constant__` and `__device__` variables.
"""

import hashlib
import re
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tasks.errors import UnavailableError
from tools import process
from tools.toolchain import find_cuda_home

LISTING_LIMIT_S = 120.0
_FUNCTION = re.compile(r"^\s*Function : (\S+)$")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?);")
_ADDRESS_SLOT = re.compile(r"c\[0x4\]\[[^\]]*\]")
_NAME = re.compile(r"(\d+)_GLOBAL__N_")


def find_cuobjdump() -> Path | None:
    """NVIDIA's cuobjdump: the one on the path, else of the CUDA toolkit, else the one that Triton brings along."""
    if found := shutil.which("cuobjdump"):
        return Path(found)
    places = [home / "bin" for home in (find_cuda_home(),) if home is not None]
    triton = find_spec("triton")
    if triton is not None and triton.origin is not None:
        places.append(Path(triton.origin).parent / "backends" / "nvidia" / "bin")
    return next((place / "cuobjdump" for place in places if (place / "cuobjdump").is_file()), None)


def kernels(library: Path) -> dict[str, str]:
    """A digest of the instructions of each function on the GPU, by its name.

    Raises:
        UnavailableError: there is no cuobjdump on this machine, or it cannot read the library.
    """
    program = find_cuobjdump()
    if program is None:
        raise UnavailableError("cuobjdump was not found; it comes with the CUDA toolkit and with Triton.")
    with tempfile.TemporaryDirectory(prefix="kernelwright-sass-") as folder:
        listing = Path(folder) / "listing"
        shell = 'exec "$0" -sass "$1" > "$2"'  # Listings are longer than what is kept of a process's output.
        done = process.run(
            ["sh", "-c", shell, str(program), str(library), str(listing)], cwd=Path(folder), timeout_s=LISTING_LIMIT_S
        )
        if done.returncode:
            raise UnavailableError(f"{program} cannot read {library}: {done.output.strip()[-500:]}")
        return digests(listing.read_text(encoding="utf-8"))


def digests(listing: str) -> dict[str, str]:
    """As `kernels`, from what `cuobjdump -sass` prints."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in listing.splitlines():
        if header := _FUNCTION.match(line):
            current = found.setdefault(without_file_names(header[1]), [])
        elif instruction := _INSTRUCTION.match(line):
            current.append(without_file_names(_ADDRESS_SLOT.sub("c[0x4][]", " ".join(instruction[1].split()))))
    return {name: hashlib.sha256("\n".join(lines).encode()).hexdigest() for name, lines in found.items()}


def without_file_names(text: str) -> str:
    """Mangled names whose anonymous namespaces have lost the hash and the file name that the compiler put there."""
    parts = []
    at = 0
    while found := _NAME.search(text, at):
        parts.append(text[at : found.start()] + "_GLOBAL__N_")
        at = found.end(1) + int(found[1])
    return "".join(parts) + text[at:]


def differences(one: dict[str, str], other: dict[str, str]) -> tuple[str, ...]:
    """The names of functions that are not the same in both, sorted."""
    return tuple(sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name)))
