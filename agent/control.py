"""The exception that steers a rollout: it is over, for a reason and by somebody's doing."""

from runs.events import Culprit, EndReason, usual_culprit


class EndRollout(Exception):
    """The rollout is over."""

    def __init__(self, reason: EndReason, message: str, culprit: Culprit | None = None) -> None:
        """Without a culprit, it is the one who usually is behind the reason."""
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.culprit = culprit or usual_culprit(reason)
