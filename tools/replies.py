"""What a worker may answer. It is not trusted, so every line is validated before anything is done with it."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from tasks.errors import ProtocolError
from tasks.record import Record
from tools.inline_request import InlineRequest
from tools.printable import printable

Told = Annotated[str, AfterValidator(printable)]
"""A text that ends up in a message."""
_NO_TIME = 1 << 63
"""Nanoseconds beyond which a number is no time: 292 years."""


class Written(Record):
    """A tensor that the worker says it wrote to the shared memory."""

    name: Told = Field(max_length=400)
    dtype: str = Field(max_length=40)
    shape: tuple[int, ...] = Field(max_length=16)
    offset: int | None = None
    """None where it did not fit."""


_Place = Annotated[int, Field(ge=0, lt=1 << 57)]
"""An address of a process, or a number of elements."""


class Held(Record):
    """A tensor that the worker says it holds in its own memory."""

    name: Told = Field(max_length=400)
    dtype: str = Field(max_length=40)
    shape: tuple[_Place, ...] = Field(max_length=16)
    strides: tuple[_Place, ...] = Field(max_length=16)
    """In elements."""
    address: _Place

    @model_validator(mode="after")
    def _has_a_stride_for_each_dimension(self) -> Self:
        if len(self.shape) != len(self.strides):
            raise ValueError("a tensor has as many strides as dimensions")
        return self

    @property
    def span(self) -> int:
        """How many elements lie from the first to the last, those between that are not its own among them."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


_Amount = Annotated[int, Field(ge=0, lt=_NO_TIME)]
_Dimension = Annotated[int, Field(ge=1, lt=1 << 31)]
Dimensions = tuple[_Dimension, _Dimension, _Dimension]


class Traced(Record):
    """A kernel or a copy that the worker says a GPU ran."""

    name: Told = Field(max_length=1000)
    start_ns: int = Field(gt=-_NO_TIME, lt=_NO_TIME)
    ns: int = Field(ge=0, lt=_NO_TIME)
    grid: Dimensions | None = None
    """None for a copy, as are the next three."""
    block: Dimensions | None = None
    registers: int | None = Field(default=None, ge=0, lt=1 << 31)
    shared_bytes: int | None = Field(default=None, ge=0, lt=1 << 31)


class Done(Record):
    """A request that was carried out; which fields are there depends on the request."""

    requested: int = 0
    """How many extensions the candidate has asked for so far."""
    ended_by: Told = ""
    matched: str = ""
    prepare_ns: int = Field(default=0, ge=0, lt=_NO_TIME)
    outputs: tuple[Written, ...] = ()
    state: tuple[Written, ...] = ()
    inputs: tuple[Written, ...] = ()
    held_outputs: tuple[Held, ...] = ()
    """In place of `outputs`, where it was asked for."""
    held_state: tuple[Held, ...] = ()
    computing: dict[Told, int] = Field(default_factory=dict)
    launched: dict[Told, tuple[_Amount, _Amount]] = Field(default_factory=dict)
    launch_error: Told = Field(default="", max_length=400)
    marks: int = 0
    ns: int = Field(default=0, ge=0, lt=_NO_TIME)
    traced: tuple[Traced, ...] = ()
    handle: str = Field(default="", max_length=128)
    """Opens the GPU memory that inputs and outputs of timed calls lie in."""


class WorkerFault(Record):
    """The candidate's fault, as the worker tells it."""

    kind: Literal["contract", "build", "syntax", "memory", "exit", "exception"]
    type: Told
    message: Told
    lines: tuple[Told, ...] = ()
    """The candidate's frames, innermost last."""


class DoneLine(Record):
    """The line of a request that was carried out."""

    done: Done


class FaultLine(Record):
    """The line of a worker that ends with its candidate's fault."""

    fault: WorkerFault


class ReadyLine(Record):
    """The line of a worker that waits for the inputs of a timed call."""

    ready: Literal[True]


class BuildLine(Record):
    """The line of a worker that needs an extension."""

    build: InlineRequest


ReplyLine = DoneLine | FaultLine | BuildLine | ReadyLine
_REPLY: TypeAdapter[ReplyLine] = TypeAdapter(ReplyLine)


def parse_reply(message: dict[str, object]) -> ReplyLine:
    """The reply that a line holds.

    Raises:
        ProtocolError: the line is no reply.
    """
    try:
        return _REPLY.validate_python(message)
    except ValidationError as error:
        raise ProtocolError(f"a worker's line broke the protocol: {error.errors()[0]['msg']}") from error
