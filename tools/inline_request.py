"""What a candidate asked `load_inline` for; sent by the worker, built by the judge."""

import shlex

from pydantic import field_validator

from tasks.record import Record
from tools.printable import printable


class InlineRequest(Record):
    """The arguments of one `load_inline` call. Untrusted: it comes from the worker."""

    name: str
    cpp_sources: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()
    functions: dict[str, str] | None = None
    """Name to docstring; None where the source holds its own PYBIND11_MODULE or registers operators."""
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    with_cuda: bool = False
    is_python_module: bool = True
    error_handling: bool = True
    """Bind with `torch::wrap_pybind_function`, as `with_pytorch_error_handling` asks."""
    implicit_headers: bool = True

    @field_validator("extra_cflags", "extra_cuda_cflags", "extra_ldflags")
    @classmethod
    def _one_flag_each(cls, flags: tuple[str, ...]) -> tuple[str, ...]:
        """Several flags in one text are several flags: PyTorch hands them to a shell, which splits them too."""
        return tuple(part for flag in flags for part in shlex.split(flag))

    @field_validator("name")
    @classmethod
    def _name_is_printable(cls, name: str) -> str:
        """A label only, for people and models to read."""
        return printable(name)

    @field_validator("functions")
    @classmethod
    def _names_are_identifiers(cls, functions: dict[str, str] | None) -> dict[str, str] | None:
        for name in functions or {}:
            if not all(part.isidentifier() for part in name.split("::")):
                raise ValueError(f"functions names {name!r}, which is no C++ function name")
        return functions
