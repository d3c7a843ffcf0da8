"""Moves tensors between the shared memory and the candidate, and takes outputs apart."""

from typing import Any

import torch

from tools.worker.messages import Region, Slot
from tools.worker.shared_memory import aligned, name_of, view

MOST_SPREAD = 2
"""Elements from a tensor's first to its last for each of its own, beyond which copying it is less than reading all."""


class ContractError(Exception):
    """The candidate breaks its contract; the text says how."""


def read(memory: torch.Tensor, slots: tuple[Slot, ...], device: str) -> list[torch.Tensor]:
    """Private copies of the tensors at the slots, on the device."""
    return [view(memory, slot).to(device, copy=True) for slot in slots]


def flatten(value: Any, path: str = "output") -> list[tuple[str, torch.Tensor]]:
    """The tensors of an output in order, each with its path, for example `output[1]` or `output['state']`.

    Raises:
        ContractError: something that is no dense tensor, tuple, list or dict.
    """
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout is not torch.strided or value.is_quantized:
            raise ContractError(f"{path} is a {value.layout} tensor; return a dense (strided) one")
        return [(path, value)]
    if isinstance(value, tuple | list):
        return [leaf for i, item in enumerate(value) for leaf in flatten(item, f"{path}[{i}]")]
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in flatten(item, f"{path}[{key!r}]")]
    raise ContractError(f"{path} is a {type(value).__name__}; forward must return tensors as the reference does")


def require_own_memory(outputs: list[tuple[str, torch.Tensor]], earlier: list[tuple[str, torch.Tensor]]) -> None:
    """Raise `ContractError` if an output lies in the memory of an earlier one, which is still held."""
    held = {tensor.untyped_storage().data_ptr() for _, tensor in earlier if tensor.numel()}
    for name, tensor in outputs:
        if tensor.numel() and tensor.untyped_storage().data_ptr() in held:
            raise ContractError(
                f"{name} lies in the memory of an earlier call's output, which its caller may still hold; return new "
                "memory from every call (a clone will do)."
            )


def write(
    memory: torch.Tensor,
    region: Region,
    named: list[tuple[str, torch.Tensor]],
    places: dict[Slot, torch.Tensor] | None = None,
) -> list[dict[str, Any]]:
    """Copy tensors into a region, one after another; those that do not fit are described without an offset.

    `places` keeps the views that were written to: operators that need not run in a timed call need not be recorded.
    """
    places = {} if places is None else places
    offset, end = aligned(region.offset), region.offset + region.capacity
    written: list[dict[str, Any]] = []
    for name, tensor in named:
        entry: dict[str, Any] = {"name": name, "dtype": name_of(tensor.dtype), "shape": list(tensor.shape)}
        size = tensor.numel() * tensor.element_size()
        if offset + size <= end:
            slot = Slot(name, entry["dtype"], tuple(tensor.shape), offset)
            if slot not in places:
                places[slot] = view(memory, slot)
            places[slot].copy_(tensor.detach())
            entry["offset"] = offset
            offset = aligned(offset + size)
        written.append(entry)
    return written


def located(named: list[tuple[str, torch.Tensor]]) -> tuple[list[dict[str, Any]], list[torch.Tensor]]:
    """Where tensors lie in this process's memory, and the copies of those that cannot be read there: elements that are
    spread wide, or that PyTorch only marks as conjugate or negative."""
    held: list[dict[str, Any]] = []
    copies: list[torch.Tensor] = []
    for name, tensor in named:
        readable = tensor
        if tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg() or _spread_wide(tensor):
            readable = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
            copies.append(readable)
        held.append(
            {
                "name": name,
                "dtype": name_of(readable.dtype),
                "shape": list(readable.shape),
                "strides": list(readable.stride()),
                "address": readable.data_ptr(),
            }
        )
    return held, copies


def _spread_wide(tensor: torch.Tensor) -> bool:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return sum((size - 1) * stride for size, stride in steps) > MOST_SPREAD * tensor.numel()


def fill(model: torch.nn.Module, values: dict[str, torch.Tensor]) -> str:
    """Give a model its parameters and buffers; returns how they were matched.

    Raises:
        ContractError: neither the names with their element counts match nor is there a `load_reference`.
    """
    own = model.state_dict(keep_vars=True)
    if set(own) == set(values) and all(own[name].numel() == values[name].numel() for name in own):
        for name, target in own.items():
            target.detach().copy_(values[name].reshape(target.shape))
        return "names" if all(own[name].shape == values[name].shape for name in own) else "element counts"
    load_reference = getattr(model, "load_reference", None)
    if callable(load_reference):
        load_reference(values)
        return "load_reference"
    raise ContractError(
        "the parameters and buffers of ModelNew do not match the reference's.\n"
        f"reference: {_listed(values)}\nModelNew:  {_listed(own)}\n"
        "Use the same names with the same shapes (or the same element count), or define "
        "load_reference(self, state: dict[str, Tensor]) on ModelNew."
    )


def _listed(state: dict[str, torch.Tensor]) -> str:
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in sorted(state.items())) or "(none)"


def set_buffers(model: torch.nn.Module, memory: torch.Tensor, slots: tuple[Slot, ...]) -> None:
    """Set the buffers that the reference updates to the judge's values."""
    # Most tasks have none, and a timed call waits for this.
    own = dict(model.state_dict(keep_vars=True)) if slots else {}
    for slot in slots:
        target = own.get(slot.name)
        if target is None:
            raise ContractError(
                f"the reference updates its buffer {slot.name!r}, which ModelNew does not have; register it under "
                "that name and update it in forward."
            )
        target.detach().copy_(view(memory, slot).reshape(target.shape))


def named_buffers(model: torch.nn.Module, names: tuple[str, ...]) -> list[tuple[str, torch.Tensor]]:
    """The buffers that are compared like outputs, as they are now."""
    own = model.state_dict(keep_vars=True) if names else {}
    return [(name, own[name]) for name in names if name in own]
