"""Builds what a candidate asked `load_inline` for: two compilers at once, a precompiled header, a cache by content."""

import contextlib
import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import HarnessError
from tools import process
from tools.build_text import CANDIDATE_FILE, advice, host_source, located, module_name
from tools.cache import Hold, cache_limit_bytes, cache_root, workplace
from tools.cache_tending import tend_now_and_then
from tools.candidate import Candidate
from tools.confinement import for_compiler
from tools.diagnostics import parse_diagnostics, parse_ptxas
from tools.folders import read_regular, write_new
from tools.inline_request import InlineRequest
from tools.kept_builds import KeptBuild, find_build, keep_build
from tools.library_symbols import computing_symbols
from tools.precompiled import precompiled_prelude
from tools.results import Diagnostic, Extension
from tools.toolchain import Toolchain
from tools.usage import FOLDER_LIMIT_BYTES, compiler_budget
from tools.worker.sandbox import NOT_STARTED

COMPILE_TIMEOUT_S = 300.0
_MOST_ATTEMPTS = 3
_FORMAT = 2
"""Part of every key; raised when what a build consists of changes."""

# As torch.utils.cpp_extension passes to nvcc on every build.
_NVCC_DEFINES = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)
_NEEDS_TORCH = re.compile(r"torch|\bat::|\bc10::|\bATen\b|TORCH_|AT_DISPATCH|\bAT_|C10_|py::|pybind")
_CUDA_HEADERS = ("cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h")
_STANDARD_HEADERS = ("algorithm", "cfloat", "cmath", "cstdint", "cstdio", "limits", "tuple", "vector")
# Errors that a header could cure; others are the same with and without PyTorch's headers.
_MAYBE_A_HEADER = re.compile(
    r"undefined|has no member|not a type|no instance|must be a class|cannot open source|namespace"
)


@dataclass(frozen=True)
class BuiltExtension:
    """An extension on disk, and what to report about it."""

    library: Path
    module_name: str
    report: Extension
    hold: Hold
    """While it lives, the library stays on the disk."""


class BuildError(Exception):
    """A candidate's extension did not build; carries what to tell its author."""

    def __init__(self, message: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.diagnostics = diagnostics


@dataclass(frozen=True)
class _Unit:
    """The outcome of one compiler."""

    object_file: Path
    output: str
    returncode: int
    plain: bool


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
            "cuda": [self.toolchain.cuda_version, self.toolchain.architecture] if self._with_cuda(request) else None,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()

    @staticmethod
    def _with_cuda(request: InlineRequest) -> bool:
        return bool(request.cuda_sources) or request.with_cuda

    def _build_in(
        self, work: Path, request: InlineRequest, candidate: Candidate, key: str, started: float
    ) -> Extension:
        # The compilers print the offending line from the file that #line names, so it must lie beside the sources.
        _write_source(work / CANDIDATE_FILE, candidate.text, errors="surrogateescape")
        jobs: list[Callable[[], _Unit]] = [lambda: self._compile_host(work, request, candidate, key)]
        if request.cuda_sources:
            jobs.append(lambda: self._compile_device(work, request, candidate, key))
        with ThreadPoolExecutor(len(jobs)) as pool:
            units = [future.result() for future in [pool.submit(job) for job in jobs]]
        output = "\n".join(unit.output for unit in units)
        if any(unit.returncode for unit in units):
            raise self._failure(request, output)
        self._link(work, request, units)
        calls = self._library_calls(work, units)
        return Extension(
            label=request.name,
            key=key,
            cached=False,
            seconds=time.monotonic() - started,
            path_taken="plain" if any(unit.plain for unit in units) else "fast",
            kernels=parse_ptxas(output),
            library_calls=calls,
            warnings=tuple(d for d in parse_diagnostics(output, CANDIDATE_FILE) if d.severity == "warning"),
        )

    def _compile_host(self, work: Path, request: InlineRequest, candidate: Candidate, key: str) -> _Unit:
        chain = self.toolchain
        flags = [chain.host_standard, "-fPIC", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        flags += [f"-I{path}" for path in request.extra_include_paths]
        flags += [*chain.host_includes, *(chain.cuda_includes if self._with_cuda(request) else ())]
        flags += request.extra_cflags
        prelude = precompiled_prelude(chain, flags) if request.implicit_headers else None
        source = work / "main.cpp"
        _write_source(source, host_source(request, candidate, key, include_torch=prelude is None))
        target = work / "main.o"
        use = [] if prelude is None else ["-include", str(prelude)]
        argv = [chain.host_compiler, *use, *flags, "-c", source.name, "-o", target.name]
        return self._run(argv, work, target, plain=prelude is None)

    def _compile_device(self, work: Path, request: InlineRequest, candidate: Candidate, key: str) -> _Unit:
        """Without PyTorch's headers where the sources name nothing of PyTorch, else as `load_inline` does it."""
        light = request.implicit_headers and not any(_NEEDS_TORCH.search(text) for text in request.cuda_sources)
        if light:
            unit = self._run_nvcc(work, request, candidate, key, plain=False)
            errors = [d.message for d in parse_diagnostics(unit.output, CANDIDATE_FILE) if d.severity == "error"]
            if unit.returncode == 0 or not any(_MAYBE_A_HEADER.search(message) for message in errors):
                return unit
        return self._run_nvcc(work, request, candidate, key, plain=True)

    def _run_nvcc(self, work: Path, request: InlineRequest, candidate: Candidate, key: str, *, plain: bool) -> _Unit:
        chain = self.toolchain
        implicit: tuple[str, ...] = ()
        if request.implicit_headers:
            implicit = ("torch/types.h", "cuda.h", "cuda_runtime.h") if plain else (*_CUDA_HEADERS, *_STANDARD_HEADERS)
        includes = "".join(f"#include <{header}>\n" for header in implicit)
        source = work / ("cuda.cu" if plain else "cuda_light.cu")
        body = located(request.cuda_sources, candidate, "cuda_sources")
        _write_source(source, includes + body)
        target = work / "cuda.o"
        flags = [f"-DTORCH_EXTENSION_NAME={module_name(key)}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        flags += [f"-I{path}" for path in request.extra_include_paths]
        flags += [*chain.host_includes, *chain.cuda_includes, *_NVCC_DEFINES]
        flags += [*self._architecture_flags(request), "--compiler-options", "-fPIC", "-Xptxas", "-v"]
        flags += request.extra_cuda_cflags
        if not any(flag.startswith(("-std=", "--std=")) for flag in request.extra_cuda_cflags):
            flags.append(chain.host_standard)
        argv = [chain.nvcc, "-ccbin", chain.host_compiler, *flags, "-c", source.name, "-o", target.name]
        return self._run(argv, work, target, plain=plain)

    def _architecture_flags(self, request: InlineRequest) -> list[str]:
        """The present GPU's architecture, unless the candidate names its own; other flags that happen to contain
        the letters `arch` change nothing."""
        named = ("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code")
        if any(flag.startswith(named) for flag in request.extra_cuda_cflags):
            return []
        number = self.toolchain.architecture.replace(".", "")
        return [f"-gencode=arch=compute_{number},code=sm_{number}"]

    def _link(self, work: Path, request: InlineRequest, units: list[_Unit]) -> None:
        chain = self.toolchain
        argv = [chain.host_compiler, "-shared", *(unit.object_file.name for unit in units), *request.extra_ldflags]
        argv += [f"-L{chain.torch_root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
        if self._with_cuda(request) and chain.cuda_home is not None:
            argv += ["-lc10_cuda", "-ltorch_cuda", f"-L{chain.cuda_home / 'lib64'}", "-lcudart"]
        argv += ["-o", "extension.so"]
        unit = self._run(argv, work, work / "extension.so", plain=False)
        if unit.returncode:
            raise self._failure(request, unit.output)

    def _library_calls(self, work: Path, units: list[_Unit]) -> tuple[str, ...]:
        """As of `computing_symbols`; both the objects and the library are asked: static libraries leave nothing to the
        loader, and link-time optimization nothing to the linker."""
        program = shutil.which("nm")
        if program is None:
            raise HarnessError("nm was not found, which comes with every linker (binutils); install binutils.")
        asked = [program, "--undefined-only", "--demangle"]
        objects = [unit.object_file.name for unit in units]
        listed = [self._run([*asked, *files], work, work, plain=False) for files in (objects, ["-D", "extension.so"])]
        if any(unit.returncode or len(unit.output) >= process.OUTPUT_LIMIT_BYTES for unit in listed):
            raise BuildError("the extension's symbols cannot be listed; use fewer external symbols and plain objects.")
        return computing_symbols("\n".join(unit.output for unit in listed))

    def _run(self, argv: list[str], work: Path, target: Path, *, plain: bool) -> _Unit:
        try:
            done = process.run(
                self._confined(argv, work), cwd=work, timeout_s=COMPILE_TIMEOUT_S, budget=compiler_budget()
            )
        except OSError as error:
            raise HarnessError(f"{argv[0]} could not be started: {error}; see `kernelwright doctor`.") from error
        if done.returncode == NOT_STARTED:
            raise HarnessError(f"{argv[0]} could not be started: {done.output.strip()}; see `kernelwright doctor`.")
        if done.over_budget:
            raise BuildError(f"the compiler {done.over_budget}. It was killed; make the source simpler.")
        if done.timed_out:
            raise BuildError(f"the compiler was stopped after {COMPILE_TIMEOUT_S:.0f} s; make the source simpler.")
        return _Unit(target, done.output, done.returncode, plain)

    def _confined(self, argv: list[str], work: Path) -> list[str]:
        """Compilers run what their input tells them to (plugins, wrappers, included files), so they are confined."""
        return for_compiler(work, read=[cache_root() / "precompiled", *self.toolchain.folders]).command(argv)

    @staticmethod
    def _failure(request: InlineRequest, output: str) -> BuildError:
        diagnostics = parse_diagnostics(output, CANDIDATE_FILE)
        errors = [d for d in diagnostics if d.severity == "error"]
        if not errors:
            tail = output.strip()[-2000:] or "the compiler printed nothing"
            return BuildError(f"the build failed without an error message that could be read:\n{tail}")
        return BuildError(advice(request, errors), diagnostics)


def _write_source(path: Path, text: str, errors: str = "surrogatepass") -> None:
    try:
        write_new(path, text, errors=errors)
    except FileExistsError as error:
        raise BuildError(f"the compiler was made to put something of its own in the place of {path.name}.") from error


def _library(work: Path) -> bytes:
    try:
        return read_regular(work / "extension.so", limit=FOLDER_LIMIT_BYTES)
    except OSError as error:
        raise BuildError(f"the linker left no library that can be used: {error.strerror or error}.") from error
