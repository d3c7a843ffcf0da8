"""Builds what a candidate asked `load_inline` for, or takes it from a cache by content."""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import HarnessError
from tools.build_text import CANDIDATE_FILE, module_name
from tools.cache import Hold, cache_limit_bytes, cache_root, workplace
from tools.cache_tending import tend_now_and_then
from tools.candidate import Candidate
from tools.compilation import BuildError, Compilation
from tools.diagnostics import parse_diagnostics, parse_ptxas
from tools.folders import read_regular
from tools.inline_request import InlineRequest
from tools.kept_builds import KeptBuild, find_build, keep_build
from tools.light_kit import light_key
from tools.results import Extension
from tools.toolchain import Toolchain
from tools.usage import FOLDER_LIMIT_BYTES

_MOST_ATTEMPTS = 3
_FORMAT = 4
"""Part of every key; raised when what a build consists of changes."""


@dataclass(frozen=True)
class BuiltExtension:
    """An extension on disk, and what to report about it."""

    library: Path
    module_name: str
    report: Extension
    hold: Hold
    """While it lives, the library stays on the disk."""


class Builder:
    """Builds extensions for one toolchain; safe to use from several processes at once."""

    def __init__(self, toolchain: Toolchain) -> None:
        self.toolchain = toolchain
        self._cache = cache_root()
        self._root = self._cache / "builds"
        self._limit_bytes = cache_limit_bytes()

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
        with self._cache_failing_clearly():
            kept = find_build(self._root / key)
            cached = kept is not None
            for _ in range(_MOST_ATTEMPTS):
                kept = kept or self._publish(key, request, candidate, started)
            if not cached:
                tend_now_and_then(self._cache, self._limit_bytes)
        if kept is None:
            raise HarnessError(
                f"what was built into {self._root / key} was gone or damaged {_MOST_ATTEMPTS} times in a row; let "
                "nothing else change that folder, see whether its disk is sound, or set KERNELWRIGHT_CACHE."
            )
        found = {"cached": cached, "seconds": time.monotonic() - started, "label": request.name}
        return BuiltExtension(kept.library, module_name(key), kept.report.model_copy(update=found), kept.hold)

    def kept(self, key: str) -> KeptBuild:
        """A build that was made before, by its key; raises HarnessError where it is gone meanwhile."""
        with self._cache_failing_clearly():
            kept = find_build(self._root / key)
        if kept is None:
            raise HarnessError(f"the build {self._root / key} is gone from the cache; build the candidate again.")
        return kept

    def _publish(self, key: str, request: InlineRequest, candidate: Candidate, started: float) -> KeptBuild | None:
        # The compilers run what candidates tell them to, so nothing of their folder is kept but the library: not the
        # candidate's text, which workers of others could read, nor what else was left there.
        with workplace(self._root) as work:
            report = self._build_in(work, request, candidate, key, started)
            return keep_build(self._root / key, _library(work), report)

    @contextlib.contextmanager
    def _cache_failing_clearly(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HarnessError(
                f"building in {self._root} failed: {error}; make room there, or set KERNELWRIGHT_CACHE."
            ) from error

    def _key(self, request: InlineRequest) -> str:
        parts = {
            "format": _FORMAT,
            "request": request.model_dump(mode="json", exclude={"name"}),
            "host": [self.toolchain.host_compiler, self.toolchain.host_version],
            "torch": self.toolchain.torch_version,
            "light": light_key(self.toolchain),
            "cuda": [self.toolchain.cuda_version, self.toolchain.architecture] if self._with_cuda(request) else None,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()

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
