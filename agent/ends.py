"""How errors and results end a rollout: for which reason, and whose fault that is."""

from agent.control import EndRollout
from agent.model import AddressError, KeyRefusedError, QuotaError, RecordingExhaustedError, WaitingStoppedError
from runs.events import Culprit, EndReason
from tasks.errors import KernelwrightError, ModelServerError, StoppedError, StorageError, UnavailableError
from tools.results import Evaluation, Fault, ToolResult
from tools.verdict import culprit

_BY_SERVER: dict[type[ModelServerError], tuple[EndReason, Culprit]] = {
    RecordingExhaustedError: (EndReason.RECORDING_EXHAUSTED, Culprit.NOBODY),
    WaitingStoppedError: (EndReason.INTERRUPTED, Culprit.PERSON),
    QuotaError: (EndReason.QUOTA_EXHAUSTED, Culprit.BUDGET),
    KeyRefusedError: (EndReason.MODEL_SERVER_ERROR, Culprit.PERSON),
    AddressError: (EndReason.MODEL_SERVER_ERROR, Culprit.PERSON),
}
STOPPED = "Stopped from the keyboard or by a signal."
_OURS = {"machine": Culprit.MACHINE, "harness": Culprit.HARNESS}


def end_by(error: BaseException) -> EndRollout:
    """The end that an exception means; one that nobody foresaw is a defect of ours."""
    match error:
        case EndRollout():
            return error
        case KeyboardInterrupt() | StoppedError():
            return EndRollout(EndReason.INTERRUPTED, STOPPED)
        case StorageError():
            return EndRollout(EndReason.STORAGE_FAULT, str(error))
        case _:
            return EndRollout(EndReason.INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def end_by_server(error: ModelServerError) -> EndRollout:
    """The end that an error of a model client means."""
    for kind, (reason, whose) in _BY_SERVER.items():
        if isinstance(error, kind):
            return EndRollout(reason, str(error), whose)
    return EndRollout(EndReason.MODEL_SERVER_ERROR, str(error), Culprit.SERVER)


def end_by_tool(tool: str, error: KernelwrightError) -> EndRollout:
    """The end that an error raised by a tool means: this machine's if it cannot answer, else our own."""
    whose = Culprit.MACHINE if isinstance(error, UnavailableError) else Culprit.HARNESS
    return EndRollout(EndReason.TOOL_FAULT, f"{tool}: {error}", whose)


def fault_of_ours(result: ToolResult) -> EndRollout | None:
    """The end that a result means which is the fault of the machine or the harness; None where it is not."""
    fault = result.fault if isinstance(result, Evaluation) else result
    whose = _OURS.get(culprit(fault.verdict)) if isinstance(fault, Fault) else None
    return EndRollout(EndReason.TOOL_FAULT, fault.message, whose) if isinstance(fault, Fault) and whose else None
