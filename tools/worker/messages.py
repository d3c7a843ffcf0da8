"""What the judge may ask of a worker; each message is one JSON line. The replies are read in `tools.replies`."""

import json
import re
import socket
from dataclasses import dataclass
from typing import Any, ClassVar

GO = {"go": True}
"""The line that starts a timed call which is not gated."""
GATE_BYTES = 4096
"""The last page of the shared memory holds the gate's word and nothing else."""
MAX_LINE_BYTES = 4 << 20
"""A longer line breaks the protocol. The longest honest ones: 2,000 kernels of a trace with names of 1,000 letters take
2.3 MB, the sources of a candidate of 5,000 lines 0.2 MB."""
MAX_PARTS = 200_000
"""What a line may hold in values, by the marks between them: reading each takes a hundred times its bytes. That trace
has 28,000."""
MAX_REQUEST_BYTES = 64 << 20
"""The same of a line from the judge, which is trusted: it may hold a candidate's text."""
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)')
"""A text of JSON. One that does not end goes to the end of the line: looked for again from each of its marks, it would
take hours."""


@dataclass(frozen=True)
class Slot:
    """A tensor's place in the shared memory."""

    name: str
    dtype: str
    """A PyTorch dtype without its prefix."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the shared memory."""


@dataclass(frozen=True)
class Region:
    """A part of the shared memory that the worker may write."""

    offset: int
    capacity: int


@dataclass(frozen=True)
class Warm:
    """Bring the device up while there is no candidate yet."""

    op: ClassVar[str] = "warm"
    device: str
    """As of `Load`."""


@dataclass(frozen=True)
class Share:
    """On a GPU, allocate memory that the judge can open: tensors of all but timed calls lie there from now on."""

    op: ClassVar[str] = "share"
    shared_bytes: int


@dataclass(frozen=True)
class Load:
    """Execute the candidate's text as a module."""

    op: ClassVar[str] = "load"
    text: str
    device: str
    """`cuda`, `cpu`, or `none` for a worker that only builds."""
    allow_tf32: bool


@dataclass(frozen=True)
class Construct:
    """Make a new `ModelNew` with the task's arguments and move it to the device."""

    op: ClassVar[str] = "construct"
    init_inputs: str
    """`tools.worker.plain_values.encode` of the arguments."""
    training: bool


@dataclass(frozen=True)
class Recall:
    """Go on with an earlier `ModelNew`, which kept its parameters; they are counted from 0."""

    op: ClassVar[str] = "recall"
    number: int


@dataclass(frozen=True)
class Probe:
    """Call `forward` on CPU tensors only to see which extension it builds; the call's own end does not matter."""

    op: ClassVar[str] = "probe"
    inputs: tuple[Slot, ...]


@dataclass(frozen=True)
class Fill:
    """Give every parameter and buffer its value, then call `prepare` if there is one."""

    op: ClassVar[str] = "fill"
    state: tuple[Slot, ...]


@dataclass(frozen=True)
class Call:
    """Call the model once; write its outputs, the named buffers and the inputs as they are afterwards."""

    op: ClassVar[str] = "call"
    inputs: tuple[Slot, ...]
    state: tuple[Slot, ...]
    """Buffers to set before the call and to return after it."""
    region: Region
    watch: bool
    """Note which operators PyTorch dispatches, and which kernels a GPU runs."""


@dataclass(frozen=True)
class Trace:
    """Call the model once on a GPU, and say which kernels ran; what it answers is not returned."""

    op: ClassVar[str] = "trace"
    inputs: tuple[Slot, ...]
    state: tuple[Slot, ...]
    flush_bytes: int
    """What to read before the call, so that its inputs are in no cache."""


@dataclass(frozen=True)
class Stage:
    """Get ready for timed calls: on a GPU, allocate memory that the judge can open, and prepare the gate."""

    op: ClassVar[str] = "stage"
    shared_bytes: int
    """GPU memory for inputs and outputs of timed calls; on the host they lie in the memory that is shared already."""
    watch: bool
    """Record operators from here until `Report`."""
    in_place: bool = False
    """On the host: leave outputs of timed calls where they are until the next one, and say where."""


@dataclass(frozen=True)
class Timed:
    """Time one call and leave its outputs in the region.

    The worker says `ready`, and the judge writes the inputs only then: on the host before it sends the line `GO`, on a
    GPU before it opens the gate behind which the call is queued already.
    """

    op: ClassVar[str] = "timed"
    inputs: tuple[Slot, ...]
    """Places in the shared memory (on a GPU, in the memory of `Stage`), which hold no inputs yet."""
    state: tuple[Slot, ...]
    region: Region
    """Where outputs go, in the memory that holds the inputs, unless they stay in place."""
    gate: int
    """The value that opens the gate; 0 for a call that is launched after `GO`."""
    held: int
    """How many earlier calls' outputs stay in memory, so that this call's come to lie elsewhere."""


@dataclass(frozen=True)
class Report:
    """Say which operators computed in timed calls."""

    op: ClassVar[str] = "report"


Request = Warm | Load | Share | Construct | Recall | Probe | Fill | Call | Trace | Stage | Timed | Report
_REQUESTS = (Warm, Load, Share, Construct, Recall, Probe, Fill, Call, Trace, Stage, Timed, Report)


class Wire:
    """One JSON object a line over a stream socket."""

    def __init__(self, sock: socket.socket, longest: int | None = None) -> None:
        """`longest` is what a received line may take in bytes, `MAX_LINE_BYTES` unless the other side is trusted."""
        self.sock = sock
        self._longest = MAX_LINE_BYTES if longest is None else longest
        self._buffer = bytearray()

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """Send one line, with a file descriptor where one is given; raises OSError when the other side is gone."""
        line = json.dumps(message, ensure_ascii=True, allow_nan=True).encode() + b"\n"
        sent = 0 if descriptor is None else socket.send_fds(self.sock, [line], [descriptor])
        self.sock.sendall(line[sent:])

    def receive(self, descriptors: list[int] | None = None) -> dict[str, Any] | None:
        """The next line; None at the end of the stream. Raises TimeoutError by the socket's timeout, ValueError for a
        line that is too long or no JSON object.

        A file descriptor that comes with it is added to `descriptors`, where those are asked for.
        """
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > self._longest:
                raise ValueError(f"a line of more than {self._longest} bytes")
            if descriptors is None:
                chunk = self.sock.recv(1 << 16)
            else:
                chunk, received, _, _ = socket.recv_fds(self.sock, 1 << 16, 1, socket.MSG_CMSG_CLOEXEC)
                descriptors += received
            if not chunk:
                return None
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        _require_few_parts(line)
        try:
            message = json.loads(line)
        except RecursionError as error:
            raise ValueError(f"nested too deeply: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise ValueError(f"not a JSON object: {line[:80]!r}")
        return message


def _require_few_parts(line: bytes) -> None:
    """Raise ValueError for a line that would take much memory and time to read."""
    # Sources hold as many marks as they like.
    if _parts(line) > MAX_PARTS and _parts(_TEXT.sub(b"", line)) > MAX_PARTS:
        raise ValueError(f"a line of more than {MAX_PARTS} values")


def _parts(line: bytes) -> int:
    return line.count(b",") + line.count(b"[") + line.count(b"{")


def request_to_json(request: Request) -> dict[str, Any]:
    """The line that carries a request."""
    # Not `dataclasses.asdict`, whose deep copies cost a timed call a tenth of a millisecond.
    return {"op": request.op, **{name: _plain(value) for name, value in vars(request).items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return vars(value) if isinstance(value, Slot | Region) else value


def _slots(raw: list[dict[str, Any]]) -> tuple[Slot, ...]:
    return tuple(_slot(entry) for entry in raw)


def _slot(raw: dict[str, Any]) -> Slot:
    return Slot(raw["name"], raw["dtype"], tuple(raw["shape"]), raw["offset"])


def request_from_json(message: dict[str, Any]) -> Request:
    """The request that a line carries; the judge wrote it, so its form is trusted."""
    fields = dict(message)
    op = fields.pop("op")
    kind = {cls.op: cls for cls in _REQUESTS}[op]
    for name in ("inputs", "state"):
        if name in fields:
            fields[name] = _slots(fields[name])
    if "region" in fields:
        fields["region"] = Region(**fields["region"])
    return kind(**fields)
