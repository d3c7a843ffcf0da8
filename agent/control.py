"""The exceptions that steer a rollout, one tree.

Steer
├── Nudge         this reply could not be used; it carries the message for the model, and the rollout goes on
└── EndRollout    the rollout is over; it carries the reason
"""

from runs.events import EndReason


class Steer(Exception):
    """Leaves a step before its end."""


class Nudge(Steer):
    """The reply held nothing that could be carried out; the text is empty where the model has been told already."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class EndRollout(Steer):
    """The rollout is over."""

    def __init__(self, reason: EndReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
