"""The facts of a task: what its inputs are, how exact an answer must be, and which other shapes are valid."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from tasks.record import Record
from tasks.target import Target as Target


class Precision(StrEnum):
    """How much rounding an honest implementation may show."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"


Mode = Literal["train", "eval"]
"""Whether the reference runs as after `Module.train()` or after `Module.eval()`."""

Domain = Literal["real", "nonnegative", "integer"]
"""Which values an input may take: any real number, none below zero, or the integers its example shows."""


class Axis(Record):
    """A dimension that a valid input may vary, for example the batch size."""

    name: str
    cuda: int = Field(ge=1)
    """Size on the benchmark shape of the `cuda` target."""
    cpu: int = Field(ge=1)
    """Size on the benchmark shape of the `cpu` target."""
    minimum: int = Field(default=1, ge=1)
    multiple_of: int = Field(default=1, ge=1)

    def size(self, target: Target) -> int:
        """The size on the target's benchmark shape."""
        return self.cuda if target is Target.CUDA else self.cpu


class InputSpec(Record):
    """One input tensor; a dimension is a fixed size or the name of an axis."""

    name: str
    dims: tuple[int | str, ...]
    dtype: str = "float32"
    """A PyTorch dtype without its prefix."""
    domain: Domain = "real"
    channel_dim: int | None = 1
    """The dimension whose entries get their own mean and scale; None where there is no such dimension."""
    high: int = 2
    """For `integer` inputs, one more than the largest value."""


class TargetPrecision(Record):
    """The precision class on each target."""

    cuda: Precision
    cpu: Precision


class TaskFacts(Record):
    """What a task file states about its problem beside the reference itself."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: str
    used_in: str
    """Where the problem occurs in practice, with its provenance."""
    precision: TargetPrecision
    axes: tuple[Axis, ...]
    inputs: tuple[InputSpec, ...] = Field(min_length=1)
    modes: tuple[Mode, ...] = Field(default=("train",), min_length=1)
    """Each mode is a task of its own; the first bears the plain name, another gets its mode as a suffix."""
    state: tuple[str, ...] = ()
    """Buffers that the reference updates in training mode; they are compared like outputs."""
    causal_axis: str | None = None
    """The axis along which no output may depend on later inputs."""
    receptive_field: int = Field(default=1, ge=1)
    """How many steps of the length axis one output can see."""
    notes: str = ""

    @model_validator(mode="after")
    def _dimensions_name_axes(self) -> "TaskFacts":
        names = {axis.name for axis in self.axes}
        used = {dim for spec in self.inputs for dim in spec.dims if isinstance(dim, str)}
        if unknown := used - names:
            raise ValueError(f"inputs use axes that are not listed: {sorted(unknown)}; listed are {sorted(names)}")
        if self.causal_axis is not None and self.causal_axis not in names:
            raise ValueError(f"causal_axis {self.causal_axis!r} is not an axis; listed are {sorted(names)}")
        return self

    def benchmark_sizes(self, target: Target) -> dict[str, int]:
        """The size of every axis on the target's benchmark shape."""
        return {axis.name: axis.size(target) for axis in self.axes}

    def precision_on(self, target: Target) -> Precision:
        """The precision class on a target."""
        return self.precision.cuda if target is Target.CUDA else self.precision.cpu
