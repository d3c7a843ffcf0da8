"""Inputs on which a reference makes much of rounding errors are not asked of it."""

from pathlib import Path

import pytest
import torch
from judging import INPUTS, NORMALISED, task_of

from tasks.spec import Target
from tools.draws import CONSTANT, IMPULSES, UNEVEN, USUAL, InputKind, Trial
from tools.session import Session
from tools.subject import Limits
from tools.verification_plan import amplification, asked

# Without ReLU: where luck draws negative biases it leaves nothing of a channel, or of all.
NORM = NORMALISED.replace("torch.relu(y)", "y")
# A group of one channel without padding: its variance is zero where the input is constant.
INSTANCE_NORM = NORM.replace("GroupNorm(2, 4)", "GroupNorm(4, 4)").replace(", padding=1", "")
# Of two channels in a group, luck makes nearly the same.
GROUP_NORM = NORM.replace("nn.Conv1d(4, 4,", "nn.Conv1d(4, 16,").replace("GroupNorm(2, 4)", "GroupNorm(2, 16)")
DIFFERENCES = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return (x + 100.0) - x.round()
"""


def session_of(folder: Path, model: str) -> Session:
    return Session(task_of(folder, model, INPUTS), Target.CPU, Limits(), print)


def kind_asked(session: Session, kind: InputKind) -> InputKind:
    state = session.draws.state(session.oracle.template)
    trial, inputs, answer = asked(session, Trial({"N": 8, "L": 40}, kind, 0), state)
    assert len(answer.honest) == 2
    assert inputs[0][1].shape == (8, 4, 40)
    return trial.kind


@pytest.mark.parametrize("kind", [CONSTANT, IMPULSES, UNEVEN])
def test_a_norm_over_several_channels_is_asked_every_kind(tmp_path: Path, kind: InputKind) -> None:
    assert "relu" not in GROUP_NORM
    assert GROUP_NORM.count("16") == 2
    assert kind_asked(session_of(tmp_path, GROUP_NORM), kind) is kind


def test_a_norm_that_would_divide_by_the_root_of_epsilon_is_not_asked_constants(tmp_path: Path) -> None:
    """Honest kernels would differ by how they add, 300 times their rounding, and luck would decide."""
    session = session_of(tmp_path, INSTANCE_NORM)
    assert kind_asked(session, CONSTANT) is USUAL
    assert kind_asked(session, IMPULSES) is IMPULSES


def test_amplification_is_the_condition_number(tmp_path: Path) -> None:
    """x + 100 - round(x) of x near 0: rounding of x moves the output by x / 100 of its own relative size."""
    session = session_of(tmp_path, DIFFERENCES)
    value = torch.full((8, 4, 400), 0.25)
    answer = session.oracle.answer([value], {}, honest=False)
    found = amplification(session, [("x", value)], {}, answer)
    # 0.25 / 100.25; the worst of 4 channels of 3,200 random roundings is near the expected one
    assert found == pytest.approx(0.25 / 100.25, rel=0.1)
