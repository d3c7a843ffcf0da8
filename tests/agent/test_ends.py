"""Tests of what ends a rollout for which reason, and whose fault that is."""

import pytest

from agent.control import EndRollout
from agent.ends import STOPPED, end_by, end_by_server, end_by_tool, fault_of_ours
from agent.model import (
    AddressError,
    KeyRefusedError,
    QuotaError,
    RecordingExhaustedError,
    WaitingStoppedError,
)
from runs.events import Culprit, EndReason, usual_culprit
from tasks.errors import (
    HarnessError,
    KernelwrightError,
    ModelServerError,
    StoppedError,
    StorageError,
    UnavailableError,
    UsageError,
)
from tools.results import Fault
from tools.verdict import Verdict, culprit


@pytest.mark.parametrize(
    ("error", "reason", "whose"),
    [
        (ModelServerError("gone"), EndReason.MODEL_SERVER_ERROR, Culprit.SERVER),
        (QuotaError("empty"), EndReason.QUOTA_EXHAUSTED, Culprit.BUDGET),
        (KeyRefusedError("no"), EndReason.MODEL_SERVER_ERROR, Culprit.PERSON),
        (AddressError("where?"), EndReason.MODEL_SERVER_ERROR, Culprit.PERSON),
        (WaitingStoppedError("stop"), EndReason.INTERRUPTED, Culprit.PERSON),
        (RecordingExhaustedError("over"), EndReason.RECORDING_EXHAUSTED, Culprit.NOBODY),
    ],
)
def test_errors_of_a_model_client(error: ModelServerError, reason: EndReason, whose: Culprit) -> None:
    end = end_by_server(error)
    assert (end.reason, end.culprit, end.message) == (reason, whose, str(error))


@pytest.mark.parametrize(
    ("error", "reason", "whose", "message"),
    [
        (EndRollout(EndReason.TURN_LIMIT, "enough"), EndReason.TURN_LIMIT, Culprit.BUDGET, "enough"),
        (KeyboardInterrupt(), EndReason.INTERRUPTED, Culprit.PERSON, STOPPED),
        (StoppedError("stop"), EndReason.INTERRUPTED, Culprit.PERSON, STOPPED),
        (StorageError("full"), EndReason.STORAGE_FAULT, Culprit.MACHINE, "full"),
        (KeyError("x"), EndReason.INTERNAL_ERROR, Culprit.HARNESS, "KeyError: 'x'"),
        (UsageError("y"), EndReason.INTERNAL_ERROR, Culprit.HARNESS, "UsageError: y"),
    ],
)
def test_anything_else_that_is_raised(error: BaseException, reason: EndReason, whose: Culprit, message: str) -> None:
    end = end_by(error)
    assert (end.reason, end.culprit, end.message) == (reason, whose, message)


@pytest.mark.parametrize(
    ("error", "whose"), [(HarnessError("gone"), Culprit.HARNESS), (UnavailableError("no GPU"), Culprit.MACHINE)]
)
def test_errors_of_a_tool(error: KernelwrightError, whose: Culprit) -> None:
    end = end_by_tool("verify", error)
    assert (end.reason, end.culprit, end.message) == (EndReason.TOOL_FAULT, whose, f"verify: {error}")


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.CORRECT])
def test_only_faults_that_are_not_the_candidates_end_a_rollout(verdict: Verdict) -> None:
    end = fault_of_ours(Fault(stage="verify", verdict=verdict, message="why", candidate="c"))
    whose = culprit(verdict)
    assert (end is None) == (whose == "candidate")
    if end is not None:
        assert (end.reason, end.culprit.value, end.message) == (EndReason.TOOL_FAULT, whose, "why")


def test_every_reason_has_somebody_behind_it() -> None:
    assert {reason: usual_culprit(reason) for reason in EndReason}.keys() == set(EndReason)
