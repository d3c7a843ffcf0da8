"""The reference of a task: what comes out of executing its file."""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tasks.errors import TaskError

if TYPE_CHECKING:
    from torch import nn

_FORM = "a KernelBench problem defines the class Model and the functions get_inputs() and get_init_inputs()"


@dataclass(frozen=True)
class Reference:
    """A task's executable half: the class that means right, how it is constructed, and one set of inputs."""

    model_class: "type[nn.Module]"
    init_inputs: tuple[Any, ...]
    get_inputs: Callable[[], Sequence[Any]]


def load_reference(source: str, path: Path) -> Reference:
    """Execute a task file's text; raises `TaskError` where it does not run or lacks a part of the KernelBench form."""
    module = _execute(source, path)
    missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if not callable(getattr(module, name, None))]
    if missing:
        raise TaskError(f"{path}: {', '.join(missing)} not defined; {_FORM}")
    if not isinstance(module.Model, type):
        raise TaskError(f"{path}: Model is a {type(module.Model).__name__}, not a class; {_FORM}")
    try:
        init_inputs = tuple(module.get_init_inputs())
    except Exception as error:
        raise TaskError(f"{path}: get_init_inputs() failed: {_describe(error)}; correct the task file") from error
    return Reference(model_class=module.Model, init_inputs=init_inputs, get_inputs=module.get_inputs)


def _execute(source: str, path: Path) -> ModuleType:
    """The file as a module; equal texts share one.

    It is entered in `sys.modules` because torch.compile looks functions' globals up there.
    """
    digest = hashlib.sha256(f"{path}\0{source}".encode()).hexdigest()[:16]
    name = f"kernelwright_task_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise TaskError(f"{path}: executing the task file failed: {_describe(error)}; correct the task file") from error
    return module


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
