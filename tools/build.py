"""Builds what a candidate asked `load_inline` for: two compilers at once, a precompiled header, a cache by content."""

import contextlib
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import HarnessError
from tools import process
from tools.cache import cache_root, published
from tools.candidate import Candidate
from tools.confinement import for_compiler
from tools.diagnostics import parse_diagnostics, parse_ptxas
from tools.folders import read_regular, remove_folder, write_new
from tools.inline_request import InlineRequest
from tools.precompiled import precompiled_prelude
from tools.results import Diagnostic, Extension
from tools.toolchain import Toolchain
from tools.usage import FOLDER_LIMIT_BYTES, compiler_budget
from tools.worker.sandbox import NOT_STARTED

COMPILE_TIMEOUT_S = 300.0
CANDIDATE_FILE = "candidate.py"
_FORMAT = 1
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
_LONGEST_SIGNATURE = 2000
"""Characters; without a bound, a source of many such words would take hours to search."""
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
            module_name=_module_name(key),
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
        return Extension(
            label=request.name,
            key=key,
            cached=False,
            seconds=time.monotonic() - started,
            path_taken="plain" if any(unit.plain for unit in units) else "fast",
            kernels=parse_ptxas(output),
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
        _write_source(source, _host_source(request, candidate, key, include_torch=prelude is None))
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
        body = _located(request.cuda_sources, candidate, "cuda_sources")
        _write_source(source, includes + body)
        target = work / "cuda.o"
        flags = [f"-DTORCH_EXTENSION_NAME={_module_name(key)}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
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
        return BuildError(_advice(request, errors), diagnostics)


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


def _module_name(key: str) -> str:
    return f"kernelwright_{key[:16]}"


def _located(sources: tuple[str, ...], candidate: Candidate, label: str) -> str:
    """The sources, each preceded by a `#line` that points into the candidate's own text where it can be found."""
    parts = []
    for index, text in enumerate(sources):
        line = candidate.first_line_of(text)
        parts.append(f'#line {line} "{CANDIDATE_FILE}"\n' if line else f'#line 1 "{label}[{index}]"\n')
        parts.append(text + "\n")
    return "".join(parts)


def _host_source(request: InlineRequest, candidate: Candidate, key: str, *, include_torch: bool) -> str:
    parts = ["#include <torch/extension.h>\n"] if include_torch and request.implicit_headers else []
    parts.append(f"#define TORCH_EXTENSION_NAME {_module_name(key)}\n")
    parts.append(_located(request.cpp_sources, candidate, "cpp_sources"))
    if request.functions is not None:
        parts.append('#line 1 "binding"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n')
        for name, doc in request.functions.items():
            callee = f"torch::wrap_pybind_function({name})" if request.error_handling else f"&{name}"
            parts.append(f"m.def({json.dumps(name)}, {callee}, {json.dumps(doc)});\n")
        parts.append("}\n")
    return "".join(parts)


def _advice(request: InlineRequest, errors: list[Diagnostic]) -> str:
    """One sentence on what to do, for the mistakes that compilers explain badly."""
    cuda = "\n".join(request.cuda_sources)
    for name in request.functions or {}:
        if not any(_is_about(error, name) for error in errors):
            continue
        if re.search(rf"__global__[^;{{]{{0,{_LONGEST_SIGNATURE}}}\b{re.escape(name)}\s*\(", cuda):
            return (
                f"functions=[{name!r}] names a __global__ kernel. Python cannot launch a kernel: write a host function "
                f"that takes torch::Tensor arguments and launches {name}<<<grid, block>>>(...), declare that function "
                "in cpp_sources, and name it in functions instead."
            )
        return (
            f"functions=[{name!r}] has no declaration in cpp_sources. load_inline generates bindings only for "
            f"functions declared there: add the prototype of {name} to cpp_sources and define it there or in "
            "cuda_sources."
        )
    count = len(errors)
    return f"the extension {request.name!r} does not compile: {count} error{'s' if count != 1 else ''}."


def _is_about(error: Diagnostic, function: str) -> bool:
    """Whether the binding's reference to a function is what an error is about; compilers also name similar ones."""
    if error.file == "linker":
        return re.search(rf"undefined reference to {re.escape(function)}\b", error.message) is not None
    quoted = re.search(r"'([^']+)'", error.message)
    return error.file == "binding" and quoted is not None and quoted[1] == function.rsplit("::", 1)[-1]
