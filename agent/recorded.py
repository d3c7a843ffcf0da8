"""The `recorded` model: the replies of a transcript, fed to the loop while every tool call is carried out for real."""

from collections.abc import Sequence

from agent.model import Message, ModelReply, Patience, RecordingExhaustedError, ToolDefinition
from runs.events import Event, ModelReplied
from runs.find import find_run, list_runs
from runs.places import RECORDED
from runs.store import RunDirectory
from tasks.errors import UsageError
from tasks.spec import Target

NAME = "recorded"


class RecordedModel:
    """Replies turn by turn with what was recorded, whatever the tools answer now. No tokens are spent."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._replies = [event for event in events if isinstance(event, ModelReplied)]
        self._given = 0

    @property
    def name(self) -> str:
        """Always `recorded`; the run's configuration says from where."""
        return NAME

    def skip(self, count: int) -> None:
        """Take so many further replies for given: those that a resumed or forked rollout has already."""
        self._given = min(self._given + count, len(self._replies))

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:  # noqa: ARG002
        """The next recorded reply."""
        if self._given == len(self._replies):
            raise RecordingExhaustedError(f"All {self._given} recorded replies were given, and none ended the rollout.")
        event = self._replies[self._given]
        self._given += 1
        return ModelReply(
            text=event.text,
            reasoning=event.reasoning,
            reasoning_fields=event.reasoning_fields,
            tool_calls=event.tool_calls,
            finish_reason=event.finish_reason or "stop",
            raw=event.raw,
        )


def find_recording(task: str, target: Target) -> tuple[RunDirectory, str]:
    """The newest run of a task and target that ships with the project, and its first rollout."""
    runs = [run for run in list_runs(RECORDED) if run.config().task == task]
    fitting = [run for run in runs if run.config().target is target]
    if fitting:
        return fitting[-1], fitting[-1].rollouts()[0]
    targets = sorted({config.target.value for run in runs if (config := run.config()).target is not None})
    if targets:
        raise UsageError(
            f"No recorded run of {task} for {target.value} ships with Kernelwright; there is one for "
            f"{', '.join(targets)}. Add --target {targets[0]}, or name a model with --model."
        )
    tasks = sorted({run.config().task for run in list_runs(RECORDED)})
    raise UsageError(
        f"No recorded run of {task} ships with Kernelwright; there are some of: {', '.join(tasks) or 'no task'}. "
        "Name a model with --model, or another run with --model recorded:RUN."
    )


def recording_of(asked: str) -> tuple[RunDirectory, str]:
    """The run meant by a path or an id, and its rollout that is to be fed to the loop."""
    found = find_run(asked)
    return found.run, found.rollouts[0]
