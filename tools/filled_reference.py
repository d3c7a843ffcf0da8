"""A reference that is copied and filled with parameters once, and then called as often as needed."""

from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tools.worker.tensors import flatten

Named = list[tuple[str, torch.Tensor]]

MOST_HELD = 10_000
"""A module that holds more objects is copied for every call: looking through them would take longer."""
_CLOSED = (str, bytes, int, float, complex, bool, type(None), type, ModuleType, FunctionType, MethodType)
_PLAIN = (dict, list, tuple, set, frozenset, OrderedDict)
"""Have no attributes."""


class FilledReference:
    """The reference with one set of parameters, in one dtype: each call answers what a fresh copy would answer.

    Buffers, and tensors that a module holds otherwise, are put back before every call, because BatchNorm in training
    updates them without a trace. What the modules hold is looked through after every call: attributes, containers and
    objects in them, and whether parameters were written to. Where anything is another, the copy is dropped, and the
    next call has a new one: a module that counts its calls or keeps what it computed is slower, not wrong.

    Assumed is that a reference keeps nothing from call to call in closures, in objects of C++ (a module of TorchScript
    is never kept), or in parameters past their version counters. What lies outside of it no copy ever had alone.
    """

    def __init__(self, make: Callable[[], torch.nn.Module], updated: tuple[str, ...]) -> None:
        """`make` gives a fresh copy, filled; `updated` names the buffers to return after a call."""
        self._make = make
        self._updated = updated
        self._model: torch.nn.Module | None = None
        self._holdings: _Holdings | None = None
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Each tensor that is no parameter, and its values before a call."""

    def __call__(self, arguments: list[torch.Tensor]) -> Named:
        """The outputs, then the updated buffers; no later call changes them. The arguments may be written to.

        `fill` comes before each call. Raises whatever the reference raises.
        """
        # A call that fails halfway leaves nothing that is used again.
        model, self._model = self._model, None
        assert model is not None
        outputs = [(name, tensor.detach()) for name, tensor in flatten(model(*arguments))]
        after = dict(model.state_dict()) if self._updated else {}
        outputs += [(f"state {name}", after[name]) for name in self._updated]
        assert self._holdings is not None
        if self._holdings.unchanged():
            self._model = model
        put_back = {tensor.untyped_storage().data_ptr() for tensor, _ in self._kept}
        return [(name, tensor.clone() if _lies_in(tensor, put_back) else tensor) for name, tensor in outputs]

    def fill(self) -> None:
        """Make the copy, or put back in it what a call may have changed."""
        if self._model is not None:
            with torch.no_grad():
                for tensor, before in self._kept:
                    tensor.copy_(before)
            return
        self._model = self._make()
        self._holdings = _Holdings(self._model)
        tensors = [tensor for tensor in self._holdings.tensors if not isinstance(tensor, torch.nn.Parameter)]
        self._kept = [(tensor, tensor.detach().clone()) for tensor in tensors]


def _lies_in(tensor: torch.Tensor, storages: set[int]) -> bool:
    return bool(storages) and tensor.untyped_storage().data_ptr() in storages


class _Holdings:
    """What the modules of a model hold: containers and objects with what is in them, and tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.tensors: list[torch.Tensor] = []
        self._containers: list[tuple[Any, tuple[int, ...]]] = []
        self._alive: list[Any] = []
        """All that was found, so that no other object comes to have its identity."""
        self._told = True
        try:
            self._look(model, set())
        except RecursionError:
            self._told = False
        self._memory = [_memory(tensor) for tensor in self.tensors]

    def unchanged(self) -> bool:
        """Whether each still holds the same; False where that cannot be told."""
        return (
            self._told
            and all(_contents(container) == contents for container, contents in self._containers)
            and [_memory(tensor) for tensor in self.tensors] == self._memory
        )

    def _look(self, value: Any, seen: set[int]) -> None:
        if isinstance(value, _CLOSED) or id(value) in seen:
            return
        seen.add(id(value))
        self._alive.append(value)
        if len(seen) > MOST_HELD or isinstance(value, torch.jit.ScriptModule):
            self._told = False
        elif isinstance(value, torch.Tensor):
            self.tensors.append(value)
        else:
            self._look_into(value, seen)

    def _look_into(self, value: Any, seen: set[int]) -> None:
        if isinstance(value, dict | list | set):
            self._containers.append((value, _contents(value)))
        if isinstance(value, dict):
            self._alive += value
            for item in list(value.values()):
                self._alive.append(item)
                self._look(item, seen)
        elif isinstance(value, list | tuple | set | frozenset):
            for item in list(value):
                self._alive.append(item)
                self._look(item, seen)
        if type(value) not in _PLAIN and isinstance(getattr(value, "__dict__", None), dict):
            self._look(value.__dict__, seen)


def _contents(container: Any) -> tuple[int, ...]:
    if isinstance(container, dict):
        return (*map(id, container), *map(id, container.values()))
    return tuple(map(id, container))


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where a tensor lies, its shape, and of a parameter how often it was written to."""
    version = tensor._version if isinstance(tensor, torch.nn.Parameter) and not tensor.is_inference() else 0
    return (tensor.data_ptr(), tensor.shape, version)
