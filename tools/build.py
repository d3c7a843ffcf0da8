"""Builds what a candidate asked `load_inline` for, or takes it from a cache by content."""

import contextlib
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import HarnessError
from tools.build_text import CANDIDATE_FILE, module_name
from tools.cache import cache_root, published
from tools.candidate import Candidate
from tools.compilation import BuildError, Compilation
from tools.diagnostics import parse_diagnostics, parse_ptxas
from tools.folders import read_regular, remove_folder
from tools.inline_request import InlineRequest
from tools.results import Extension
from tools.toolchain import Toolchain
from tools.usage import FOLDER_LIMIT_BYTES

_FORMAT = 3
"""Part of every key; raised when what a build consists of changes."""


@dataclass(frozen=True)
class BuiltExtension:
    """An extension on disk, and what to report about it."""

    library: Path
    module_name: str
    report: Extension


class Builder:
    """Builds extensions for one toolchain; safe to use from several processes at once."""

    def __init__(self, toolchain: Toolchain) -> None:
        self.toolchain = toolchain
        self._root = cache_root() / "builds"

    def build(self, request: InlineRequest, candidate: Candidate) -> BuiltExtension:
        """Build one extension, or take it from the cache.

        Raises:
            BuildError: the sources do not compile or link; carries diagnostics at the candidate's own lines.
            UnavailableError: CUDA sources, and no CUDA compiler on this machine.
            HarnessError: a compiler could not be started, or the cache could not be written.
        """
        started = time.monotonic()
        if request.cuda_sources:
            _ = self.toolchain.nvcc
        key = self._key(request)
        folder = self._root / key
        cached = self._cached(folder)
        report = cached or self._publish(folder, request, candidate, started)
        found = {"cached": cached is not None, "seconds": time.monotonic() - started, "label": request.name}
        return BuiltExtension(
            library=folder / "extension.so",
            module_name=module_name(key),
            report=report.model_copy(update=found),
        )

    def _publish(self, folder: Path, request: InlineRequest, candidate: Candidate, started: float) -> Extension:
        try:
            with published(folder) as kept, self._workplace() as work:
                report = self._build_in(work, request, candidate, folder.name, started)
                library = _library(work)
                (kept / "extension.so").write_bytes(library)
                entry = {"sha256": hashlib.sha256(library).hexdigest(), "report": report.model_dump(mode="json")}
                (kept / "report.json").write_text(json.dumps(entry))
        except OSError as error:
            raise HarnessError(
                f"building in {self._root} failed: {error}; make room there, or set KERNELWRIGHT_CACHE."
            ) from error
        return report

    @contextlib.contextmanager
    def _workplace(self) -> Iterator[Path]:
        """A folder for the compilers. They run what candidates tell them to, so nothing of it is kept but the library:
        not the candidate's text, which workers of others could read, nor what else was left there."""
        work = Path(tempfile.mkdtemp(prefix=".compiling-", dir=self._root))
        try:
            yield work
        finally:
            remove_folder(work)

    def _key(self, request: InlineRequest) -> str:
        parts = {
            "format": _FORMAT,
            "request": request.model_dump(mode="json", exclude={"name"}),
            "host": [self.toolchain.host_compiler, self.toolchain.host_version],
            "torch": self.toolchain.torch_version,
            "cuda": [self.toolchain.cuda_version, self.toolchain.architecture] if self._with_cuda(request) else None,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()

    def _cached(self, folder: Path) -> Extension | None:
        """The report of a published build whose library is the one that was written; None where there is none.

        Publishing is one step, so an entry that is not whole was changed afterwards, and must not be used.
        """
        if not folder.exists():
            return None
        try:
            entry = json.loads((folder / "report.json").read_text())
            if hashlib.sha256((folder / "extension.so").read_bytes()).hexdigest() == entry["sha256"]:
                return Extension.model_validate(entry["report"])
            cause = "another library"
        except (OSError, ValueError, KeyError) as error:
            cause = f"{type(error).__name__}: {error}"
        raise HarnessError(
            f"the cached build {folder} is not what was written there; delete that folder and try again ({cause})."
        )

    @staticmethod
    def _with_cuda(request: InlineRequest) -> bool:
        return bool(request.cuda_sources) or request.with_cuda

    def _build_in(
        self, work: Path, request: InlineRequest, candidate: Candidate, key: str, started: float
    ) -> Extension:
        done = Compilation(self.toolchain, work, request, candidate, key).run()
        return Extension(
            label=request.name,
            key=key,
            cached=False,
            seconds=time.monotonic() - started,
            path_taken=done.way,
            kernels=parse_ptxas(done.output),
            library_calls=done.library_calls,
            warnings=tuple(d for d in parse_diagnostics(done.output, CANDIDATE_FILE) if d.severity == "warning"),
        )


def _library(work: Path) -> bytes:
    try:
        return read_regular(work / "extension.so", limit=FOLDER_LIMIT_BYTES)
    except OSError as error:
        raise BuildError(f"the linker left no library that can be used: {error.strerror or error}.") from error
