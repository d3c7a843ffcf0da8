"""Compiles and links one extension: against the light headers where its sources allow it, else as `load_inline`."""

import contextlib
import errno
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.errors import HarnessError
from tools import process
from tools.build_text import CANDIDATE_FILE, advice, host_source, located, module_name
from tools.cache import cache_root
from tools.candidate import Candidate
from tools.confinement import for_compiler
from tools.diagnostics import parse_diagnostics
from tools.folders import write_new
from tools.inline_request import InlineRequest
from tools.library_symbols import computing_symbols
from tools.light_kit import LightKit, light_headers, light_kit
from tools.light_source import certain_errors, lacks_light_headers, light_prelude, needs_torch
from tools.precompiled import precompiled_prelude
from tools.results import Diagnostic
from tools.toolchain import Toolchain
from tools.usage import compiler_budget
from tools.worker.sandbox import NOT_STARTED

COMPILE_TIMEOUT_S = 300.0

# As torch.utils.cpp_extension passes to nvcc on every build.
_NVCC_DEFINES = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)
_BINDS = re.compile(r"PYBIND11_MODULE|\bpy(?:bind11)?::")

Way = Literal["light", "fast", "plain"]


class BuildError(Exception):
    """A candidate's extension did not build; carries what to tell its author."""

    def __init__(self, message: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.diagnostics = diagnostics


@dataclass(frozen=True)
class Unit:
    """The outcome of one compiler."""

    object_file: Path
    output: str
    returncode: int
    way: Way


@dataclass(frozen=True)
class Compiled:
    """An extension that lies in the folder as `extension.so`."""

    output: str
    """What the compilers printed."""
    way: Way
    """`light`: without any of PyTorch's headers; `fast`: with a precompiled one; `plain`: as `load_inline` does it."""
    library_calls: tuple[str, ...]


class Compilation:
    """One build in a folder of its own."""

    def __init__(
        self, toolchain: Toolchain, work: Path, request: InlineRequest, candidate: Candidate, key: str
    ) -> None:
        self._toolchain = toolchain
        self._work = work
        self._request = request
        self._candidate = candidate
        self._key = key
        self._cuda = bool(request.cuda_sources) or request.with_cuda

    def run(self) -> Compiled:
        """Compile and link.

        Raises:
            BuildError: the sources do not compile or link; carries diagnostics at the candidate's own lines.
            HarnessError: a compiler could not be started.
        """
        # The compilers print the offending line from the file that #line names, so it must lie beside the sources.
        self._write(CANDIDATE_FILE, self._candidate.text, errors="surrogateescape")
        with contextlib.ExitStack() as holds:
            return self._compiled(holds)

    def _compiled(self, holds: contextlib.ExitStack) -> Compiled:
        headers = None if lacks_light_headers(self._request) else light_headers(self._toolchain)
        if headers is not None:
            holds.callback(headers.hold.close)
        if headers is not None and self._cuda and not headers.has_cuda:
            headers = None
        units, kit = self._compile_light(headers, holds) if headers is not None else ((), None)
        if kit is None or any(unit.returncode for unit in units) or self._link_light(units, kit).returncode:
            units = self._compile_heavy(units)
            linked = self._link(units, self._torch_libraries())
            if linked.returncode:
                raise self._failure(linked.output)
        ways = {unit.way for unit in units}
        return Compiled(
            output="\n".join(unit.output for unit in units),
            way="plain" if "plain" in ways else ("fast" if "fast" in ways else "light"),
            library_calls=self._library_calls(units),
        )

    def _compile_light(
        self, headers: LightKit, holds: contextlib.ExitStack
    ) -> tuple[tuple[Unit, ...], LightKit | None]:
        """Everything against the light headers: the host's unit, then the device's where there is one; and the whole
        kit, to link them with.

        Raises:
            BuildError: the sources do not compile, and would not with PyTorch's headers either.
        """
        includes = headers.includes
        jobs = [lambda: self._run_host(self._light_host(), includes, use=(), way="light")]
        if self._with_device:
            jobs.append(lambda: self._run_nvcc(self._light_device(), includes, "light"))
        # Where the kit's objects are still being made, the candidate's are compiled beside them.
        with ThreadPoolExecutor(1) as beside:
            making = beside.submit(light_kit, self._toolchain)
            units = _all_at_once(jobs)
            kit = making.result()
        if kit is not None:
            holds.callback(kit.hold.close)
        certain: list[Diagnostic] = []
        for unit in units:
            certain += self._certain_errors(unit)
        if certain:
            raise BuildError(advice(self._request, certain), tuple(certain))
        return units, kit

    def _compile_heavy(self, light: tuple[Unit, ...]) -> tuple[Unit, ...]:
        """With PyTorch's headers, but for a device unit that names nothing of them."""
        jobs = [self._heavy_host]
        free = self._request.implicit_headers and not needs_torch(self._request.cuda_sources)
        done = light[1:] if free and light and not light[-1].returncode else ()
        if self._with_device and not done:
            jobs.append(self._free_device if free and not light else self._heavy_device)
        units = (*_all_at_once(jobs), *done)
        if any(unit.returncode for unit in units):
            raise self._failure("\n".join(unit.output for unit in units))
        return units

    @property
    def _with_device(self) -> bool:
        return bool(self._request.cuda_sources)

    def _light_host(self) -> str:
        sources = self._request.cpp_sources
        binds = self._request.functions is not None or any(_BINDS.search(text) for text in sources)
        prelude = light_prelude(sources, device=False, binds=binds, cuda=self._cuda)
        return host_source(self._request, self._candidate, self._key, prelude=prelude, light=True)

    def _light_device(self) -> str:
        sources = self._request.cuda_sources
        binds = any(_BINDS.search(text) for text in sources)
        prelude = light_prelude(sources, device=True, binds=binds, cuda=True)
        return prelude + located(sources, self._candidate, "cuda_sources")

    def _heavy_host(self) -> Unit:
        chain, request = self._toolchain, self._request
        includes = chain.host_includes
        flags = self._host_flags(includes)
        header = precompiled_prelude(chain, list(flags)) if request.implicit_headers else None
        prelude = "#include <torch/extension.h>\n" if header is None and request.implicit_headers else ""
        source = host_source(request, self._candidate, self._key, prelude=prelude, light=False)
        use = () if header is None else ("-include", str(header))
        return self._run_host(source, includes, use=use, way="plain" if header is None else "fast")

    def _free_device(self) -> Unit:
        """A device unit that names nothing of PyTorch needs no light headers either."""
        unit = self._run_nvcc(self._light_device(), (), "fast")
        if unit.returncode and not self._certain_errors(unit):
            return self._heavy_device()
        return unit

    def _heavy_device(self) -> Unit:
        implicit = ("torch/types.h", "cuda.h", "cuda_runtime.h") if self._request.implicit_headers else ()
        includes = "".join(f"#include <{header}>\n" for header in implicit)
        source = includes + located(self._request.cuda_sources, self._candidate, "cuda_sources")
        return self._run_nvcc(source, self._toolchain.host_includes, "plain")

    def _host_flags(self, includes: tuple[str, ...]) -> tuple[str, ...]:
        chain, request = self._toolchain, self._request
        flags = [chain.host_standard, "-fPIC", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        flags += [f"-I{path}" for path in request.extra_include_paths]
        flags += [*includes, *(chain.cuda_includes if self._cuda else ())]
        return (*flags, *request.extra_cflags)

    def _run_host(self, text: str, includes: tuple[str, ...], *, use: tuple[str, ...], way: Way) -> Unit:
        if way == "light":
            includes = (*includes, *self._toolchain.python_includes)
        source, target = f"{way}/main.cpp", self._work / f"main_{way}.o"
        self._write(source, text)
        flags = self._host_flags(includes)
        argv = [self._toolchain.host_compiler, *use, *flags, "-c", source, "-o", target.name]
        return self._run(argv, target, way)

    def _run_nvcc(self, text: str, includes: tuple[str, ...], way: Way) -> Unit:
        chain, request = self._toolchain, self._request
        # One name for all ways: the names of kernels in anonymous namespaces hold their file's.
        source, target = f"{way}/cuda.cu", self._work / f"cuda_{way}.o"
        self._write(source, text)
        flags = [f"-DTORCH_EXTENSION_NAME={module_name(self._key)}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        flags += [f"-I{path}" for path in request.extra_include_paths]
        flags += [*includes, *chain.python_includes, *chain.cuda_includes, *_NVCC_DEFINES]
        flags += [*self._architecture_flags(), "--compiler-options", "-fPIC", "-Xptxas", "-v"]
        flags += request.extra_cuda_cflags
        if not any(flag.startswith(("-std=", "--std=")) for flag in request.extra_cuda_cflags):
            flags.append(chain.host_standard)
        argv = [chain.nvcc, "-ccbin", chain.host_compiler, *flags, "-c", source, "-o", target.name]
        return self._run(argv, target, way)

    def _architecture_flags(self) -> list[str]:
        """The present GPU's architecture, unless the candidate names its own; other flags that happen to contain
        the letters `arch` change nothing."""
        named = ("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code")
        if any(flag.startswith(named) for flag in self._request.extra_cuda_cflags):
            return []
        number = self._toolchain.architecture.replace(".", "")
        return [f"-gencode=arch=compute_{number},code=sm_{number}"]

    def _torch_libraries(self) -> tuple[str, ...]:
        chain = self._toolchain
        of_cuda = ("-lc10_cuda", "-ltorch_cuda") if self._cuda and chain.cuda_home is not None else ()
        return f"-L{chain.torch_root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", *of_cuda

    def _link_light(self, units: tuple[Unit, ...], kit: LightKit) -> Unit:
        return self._link(units, (*map(str, kit.objects(cuda=self._cuda)), *kit.link_flags(cuda=self._cuda)))

    def _link(self, units: tuple[Unit, ...], torch: tuple[str, ...]) -> Unit:
        chain = self._toolchain
        objects = (unit.object_file.name for unit in units)
        argv = [chain.host_compiler, "-shared", *objects, *self._request.extra_ldflags, *torch]
        if self._cuda and chain.cuda_home is not None:
            argv += [f"-L{chain.cuda_home / 'lib64'}", "-lcudart"]
        return self._run([*argv, "-o", "extension.so"], self._work / "extension.so", "light")

    def _library_calls(self, units: tuple[Unit, ...]) -> tuple[str, ...]:
        """As of `computing_symbols`; both the objects and the library are asked: static libraries leave nothing to the
        loader, and link-time optimization nothing to the linker."""
        program = shutil.which("nm")
        if program is None:
            raise HarnessError("nm was not found, which comes with every linker (binutils); install binutils.")
        asked = [program, "--undefined-only", "--demangle"]
        objects = [unit.object_file.name for unit in units]
        runs = [self._run([*asked, *files], self._work, "light") for files in (objects, ["-D", "extension.so"])]
        if any(run.returncode or len(run.output) >= process.OUTPUT_LIMIT_BYTES for run in runs):
            raise BuildError("the extension's symbols cannot be listed; use fewer external symbols and plain objects.")
        return computing_symbols("\n".join(run.output for run in runs))

    def _run(self, argv: list[str], target: Path, way: Way) -> Unit:
        # Compilers run what their input tells them to (plugins, wrappers, included files), so they are confined.
        readable = [cache_root() / "precompiled", cache_root() / "light", *self._toolchain.folders]
        confined = for_compiler(self._work, read=readable).command(argv)
        try:
            done = process.run(confined, cwd=self._work, timeout_s=COMPILE_TIMEOUT_S, budget=compiler_budget())
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise BuildError(
                    "the flags are longer than a program's arguments can be; put what they hold into a source."
                ) from error
            raise HarnessError(f"{argv[0]} could not be started: {error}; see `kernelwright doctor`.") from error
        if done.returncode == NOT_STARTED:
            raise HarnessError(f"{argv[0]} could not be started: {done.output.strip()}; see `kernelwright doctor`.")
        if done.over_budget:
            raise BuildError(f"the compiler {done.over_budget}. It was killed; make the source simpler.")
        if done.timed_out:
            raise BuildError(f"the compiler was stopped after {COMPILE_TIMEOUT_S:.0f} s; make the source simpler.")
        return Unit(target, done.output, done.returncode, way)

    def _certain_errors(self, unit: Unit) -> tuple[Diagnostic, ...]:
        if not unit.returncode:
            return ()
        return certain_errors(self._errors(unit.output), self._request, self._candidate.text, self._toolchain)

    def _write(self, name: str, text: str, errors: str = "surrogatepass") -> None:
        path = self._work / name
        try:
            path.parent.mkdir(exist_ok=True)
            write_new(path, text, errors=errors)
        except FileExistsError as error:
            raise BuildError(f"the compiler was made to put something of its own in the place of {name}.") from error

    @staticmethod
    def _errors(output: str) -> list[Diagnostic]:
        return [found for found in parse_diagnostics(output, CANDIDATE_FILE) if found.severity == "error"]

    def _failure(self, output: str) -> BuildError:
        errors = self._errors(output)
        if not errors:
            tail = output.strip()[-2000:] or "the compiler printed nothing"
            return BuildError(f"the build failed without an error message that could be read:\n{tail}")
        return BuildError(advice(self._request, errors), parse_diagnostics(output, CANDIDATE_FILE))


def _all_at_once(jobs: list[Callable[[], Unit]]) -> tuple[Unit, ...]:
    with ThreadPoolExecutor(len(jobs)) as pool:
        return tuple(future.result() for future in [pool.submit(job) for job in jobs])
