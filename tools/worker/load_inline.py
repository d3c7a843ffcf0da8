"""The `load_inline` that a candidate finds in a worker: it asks the judge to build and imports what comes back."""

import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import Any

import torch

from tools.worker.messages import Wire


class ExtensionBuildError(RuntimeError):
    """What a candidate sees when its extension does not build."""


class CollectedError(BaseException):
    """Ends a call that was made only to see which extension it builds."""


def _texts(value: str | Sequence[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(item) for item in value]


class InlineLoader:
    """Stands in for `torch.utils.cpp_extension.load_inline` within one worker."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._libraries: dict[str, str] = {}
        self.requested = 0
        self.collecting = False

    def install(self) -> None:
        """Put this loader where candidates look for PyTorch's."""
        # Not imported at the top: the fork server has to see to it that importing it leaves the driver alone.
        from torch.utils import cpp_extension

        cpp_extension.load_inline = self.load_inline
        cpp_extension.load = self.load

    def _path(self, module: str, descriptor: int) -> str:
        """Where the dynamic linker finds a library that came as a descriptor, which stays open: it knows libraries by
        their paths, and would take the next one there for this one."""
        if module in self._libraries:
            os.close(descriptor)
        return self._libraries.setdefault(module, f"/proc/self/fd/{descriptor}")

    def load(self, *_args: Any, **_kwargs: Any) -> ModuleType:
        """Refuse `load`: a candidate is one text, so its sources must be inline."""
        raise ExtensionBuildError(
            "torch.utils.cpp_extension.load builds from files, which a candidate does not have; use load_inline."
        )

    def load_inline(
        self,
        name: str,
        cpp_sources: str | Sequence[str] | None = None,
        cuda_sources: str | Sequence[str] | None = None,
        sycl_sources: str | Sequence[str] | None = None,
        functions: str | Sequence[str] | dict[str, str] | None = None,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_sycl_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: Sequence[str] | str | None = None,
        build_directory: str | None = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        with_sycl: bool | None = None,
        is_python_module: bool = True,
        with_pytorch_error_handling: bool = True,
        keep_intermediates: bool = True,
        use_pch: bool = False,
        no_implicit_headers: bool = False,
    ) -> Any:
        """As `torch.utils.cpp_extension.load_inline`; where and how it builds is the judge's affair.

        Raises:
            ExtensionBuildError: the sources do not compile; the judge keeps the compiler's messages.
        """
        del build_directory, verbose, keep_intermediates, use_pch, extra_sycl_cflags
        if sycl_sources or with_sycl:
            raise ExtensionBuildError("SYCL sources cannot be built here; use cpp_sources or cuda_sources.")
        docs = functions if isinstance(functions, dict) else {item: item for item in _texts(functions)}
        flags = {
            "extra_cflags": _texts(extra_cflags),
            "extra_cuda_cflags": _texts(extra_cuda_cflags),
            "extra_ldflags": _texts(extra_ldflags),
        }
        _require_usable(docs, flags)
        self._wire.send(
            {
                "build": {
                    "name": str(name),
                    "cpp_sources": _texts(cpp_sources),
                    "cuda_sources": [text for text in _texts(cuda_sources) if text.strip()],
                    "functions": None if functions is None else docs,
                    **flags,
                    "extra_include_paths": _texts(extra_include_paths),
                    "with_cuda": bool(with_cuda),
                    "is_python_module": is_python_module,
                    "error_handling": with_pytorch_error_handling,
                    "implicit_headers": not no_implicit_headers,
                }
            }
        )
        descriptors: list[int] = []
        answer = self._wire.receive(descriptors)
        if answer is None:
            raise SystemExit(0)
        self.requested += 1
        if "failed" in answer:
            raise ExtensionBuildError(answer["failed"])
        library = self._path(answer["module"], descriptors[0])
        if self.collecting:
            raise CollectedError
        try:
            if not is_python_module:
                torch.ops.load_library(library)
                return library
            return _import_library(answer["module"], library)
        except (ImportError, OSError) as error:
            raise ExtensionBuildError(_explained(str(error), library)) from error


def _require_usable(functions: dict[str, str], flags: dict[str, list[str]]) -> None:
    """Refuse what the judge could not read, where the candidate can still be told."""
    for name in functions:
        if not all(part.isidentifier() for part in name.split("::")):
            raise ExtensionBuildError(f"functions names {name!r}, which is no C++ function name.")
    for argument, texts in flags.items():
        for text in texts:
            try:
                shlex.split(text)
            except ValueError as error:
                raise ExtensionBuildError(f"{argument} holds {text!r}, which is no list of flags: {error}.") from error


def _explained(problem: str, library: str) -> str:
    """What the dynamic linker says, without the library's path, and what to do about the usual case."""
    text = f"the extension was built, but cannot be loaded: {problem.replace(library, 'extension.so')}"
    if "undefined symbol" in problem:
        text += ". Something is declared and used but defined nowhere: define it in cpp_sources or cuda_sources."
    return text


def _import_library(name: str, path: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    # The path has no suffix that would say what it is.
    spec = importlib.util.spec_from_loader(name, ExtensionFileLoader(name, path), origin=path)
    if spec is None or spec.loader is None:
        raise ExtensionBuildError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module
