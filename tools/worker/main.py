"""The worker's life: read a request, carry it out, answer; the first fault of its candidate ends it."""

import faulthandler
import mmap
import os
import socket
import sys
import traceback
from typing import Any

import torch

from tools.worker.load_inline import ExtensionBuildError, InlineLoader
from tools.worker.messages import MAX_REQUEST_BYTES, Wire, request_from_json
from tools.worker.session import CANDIDATE_FILE, Session
from tools.worker.tensors import ContractError

_MESSAGE_LIMIT = 4000


def serve(control: socket.socket, memory_fd: int, memory_bytes: int) -> None:
    """Answer requests until the judge hangs up or the candidate faults."""
    faulthandler.enable()
    memory = torch.frombuffer(mmap.mmap(memory_fd, memory_bytes), dtype=torch.uint8)
    # A child that lives on would hold the stream open, and the judge would not see this process end.
    os.register_at_fork(after_in_child=control.close)
    wire = Wire(control, MAX_REQUEST_BYTES)
    loader = InlineLoader(wire)
    loader.install()
    session = Session(memory, loader, wire)
    # Tells the judge that the worker stands: an end before this line is the harness's fault.
    wire.send({"done": {}})
    while (message := wire.receive()) is not None:
        try:
            answer = session.handle(request_from_json(message))
        except BaseException as error:
            wire.send({"fault": _describe(error)})
            return
        wire.send({"done": answer})


def _describe(error: BaseException) -> dict[str, Any]:
    return {
        "kind": _kind(error),
        "type": type(error).__name__,
        "message": str(error)[:_MESSAGE_LIMIT],
        "lines": _candidate_lines(error),
    }


def _kind(error: BaseException) -> str:
    if isinstance(error, ContractError):
        return "contract"
    if isinstance(error, ExtensionBuildError):
        return "build"
    if isinstance(error, SyntaxError):
        return "syntax"
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error):
        return "memory"
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "exit"
    return "exception"


def _candidate_lines(error: BaseException) -> list[str]:
    """The frames of the traceback that lie in the candidate, innermost last."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"line {frame.lineno}, in {frame.name}" for frame in frames if frame.filename == CANDIDATE_FILE]
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(f"line {error.lineno}: {(error.text or '').strip()}")
    return lines[-5:]


def hush() -> None:
    """Flush what the candidate printed, so that it is there when the judge looks for it."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
