"""How much work a task is on its benchmark shape: operations from PyTorch's counter, bytes from the tensors."""

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from tasks.loader import Task
from tasks.spec import Target
from tools.briefing import Machine
from tools.draws import input_shape
from tools.worker.shared_memory import dtype_of
from tools.worker.tensors import flatten


@dataclass(frozen=True)
class Workload:
    """Operations and bytes of one call."""

    flop_count: int
    byte_count: int
    """Every input, parameter, buffer and output once."""
    output_bytes: int
    input_bytes: int

    def floor_ns(self, machine: Machine) -> float | None:
        """The roofline bound: max(bytes / peak bandwidth, operations / peak rate); None where a peak is unknown.

        Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
        """
        if machine.peak_bytes_per_s is None or machine.peak_flops_per_s is None:
            return None
        return 1e9 * max(self.byte_count / machine.peak_bytes_per_s, self.flop_count / machine.peak_flops_per_s)


def workload(task: Task, target: Target) -> Workload:
    """Count on the meta device, where nothing is computed and no memory is used."""
    reference = task.load()
    model = reference.model_class(*reference.init_inputs).train(task.mode == "train").to("meta")
    sizes = task.facts.benchmark_sizes(target)
    inputs = [
        torch.empty(input_shape(spec, sizes), dtype=dtype_of(spec.dtype), device="meta") for spec in task.facts.inputs
    ]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        outputs = [tensor for _, tensor in flatten(model(*inputs))]
    state = [value for value in model.state_dict().values() if isinstance(value, torch.Tensor)]
    return Workload(
        flop_count=int(counter.get_total_flops()),
        byte_count=_bytes([*inputs, *outputs, *state]),
        output_bytes=_bytes(outputs),
        input_bytes=_bytes(inputs),
    )


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
