"""A conversation that is being read from a foreign file: the events of a rollout in the making."""

from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from runs.config import Limits
from runs.events import Ended, EndReason, Event, Imported, ModelReplied, RolloutStarted, ToolCall, ToolReturned, Usage
from tools.results import Foreign, ToolReply

UNKNOWN = "unknown"
"""Stands for the name of a task or a model that a file does not say."""


@dataclass(frozen=True)
class Reply:
    """One reply of the model, as far as the file says what it was."""

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    raw: dict[str, JsonValue]
    usage: Usage | None = None
    finish_reason: str | None = None
    cost_usd: float | None = None
    time: datetime | None = None


class Draft:
    """Takes the parts of one conversation in their order. What has no event of its own is kept as `imported`."""

    def __init__(self) -> None:
        self.model = UNKNOWN
        self.task: str | None = None
        """The task's name, where the file states one."""
        self.tools: tuple[dict[str, JsonValue], ...] = ()
        self.system_prompt = ""
        self.opening = ""
        self.events: list[Event] = []
        self._began: datetime | None = None
        self._turn = 0
        self._open: dict[str, ToolCall] = {}

    @property
    def turns(self) -> int:
        """How many replies there are."""
        return self._turn

    @property
    def calls(self) -> int:
        """How many tool calls the replies hold."""
        return sum(len(event.tool_calls) for event in self.events if isinstance(event, ModelReplied))

    def system(self, text: str, raw: JsonValue, *, plain: bool, time: datetime | None = None) -> None:
        """A system message; `plain` where its text is all that the file says of it."""
        if self.system_prompt or self.opening or not self._begins(plain, time):
            self.keep("system", text, raw, time)
        else:
            self.system_prompt = text

    def user(self, text: str, raw: JsonValue, *, plain: bool, time: datetime | None = None) -> None:
        """A message of the user's side; `plain` where its text is all that the file says of it."""
        if self.opening or not self._begins(plain, time):
            self.keep("user", text, raw, time)
        else:
            self.opening = text

    def reply(self, reply: Reply) -> None:
        """A reply: the next turn."""
        self._turn += 1
        self._open = {call.id: call for call in reply.tool_calls}
        self.events.append(
            ModelReplied(
                turn=self._turn,
                time=reply.time,
                text=reply.text,
                reasoning=reply.reasoning,
                tool_calls=reply.tool_calls,
                usage=reply.usage,
                finish_reason=reply.finish_reason,
                raw=reply.raw,
                seconds=None,
                cost_usd=reply.cost_usd,
            )
        )

    def result(
        self, call_id: str, text: str, rest: dict[str, JsonValue], raw: JsonValue, time: datetime | None = None
    ) -> None:
        """An answer to a call of the latest reply; `rest` is what the file says of it beside its text.

        A second answer to a call, or one to a call that is not there, is kept as it stands.
        """
        call = self._open.pop(call_id, None)
        if call is None:
            self.keep("tool", text, raw, time)
            return
        self.events.append(
            ToolReturned(
                turn=self._turn,
                time=time,
                call_id=call_id,
                tool=call.name,
                reply=ToolReply(text=text, result=Foreign(raw=rest)),
                executed=True,
                seconds=None,
            )
        )

    def keep(self, role: str, text: str, raw: JsonValue, time: datetime | None = None) -> None:
        """Anything else."""
        self.events.append(Imported(turn=self._turn, time=time, role=role, text=text, raw=raw))

    def _begins(self, plain: bool, time: datetime | None) -> bool:
        """Whether a message can be part of the first event, which has one time."""
        fits = plain and not self.events and self._began in (None, time)
        self._began = time if fits else self._began
        return fits

    def finish(self, rollout: str, task: str) -> list[Event]:
        """The whole transcript, from its first event to its last, not yet numbered."""
        started = RolloutStarted(
            turn=0,
            time=self._began,
            rollout=rollout,
            task=task,
            target=None,
            model=self.model,
            limits=Limits(),
            system_prompt=self.system_prompt,
            opening=self.opening,
            tools=self.tools,
            briefing=None,
        )
        ended = Ended(
            turn=self._turn, time=None, reason=EndReason.IMPORTED, message="the imported file says no more of its end"
        )
        return [started, *self.events, ended]
