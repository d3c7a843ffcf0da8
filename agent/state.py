"""What a rollout knows: a fold of its events, so that a resumed one knows what it knew before it was killed."""

from agent.conversation import Conversation
from agent.ledger import Ledger
from agent.stuck import Repetition
from agent.window import Window
from runs.events import Compacted, Event, ModelReplied, Nudged, RolloutStarted, Submitted, ToolCall, ToolReturned

CUT_OFF = ("length", "content_filter")
"""The finish reasons of a reply that ended before its end; its arguments may be complete JSON and still be half of the
code that the model meant to write."""


class RolloutState:
    """Everything that decides what a rollout does next, except its budget."""

    def __init__(self, started: RolloutStarted, context_tokens: int | None = None) -> None:
        self.conversation = Conversation(started)
        self.ledger = Ledger()
        self.repetition = Repetition()
        self.window = Window(context_tokens)
        self.turn = 0
        """The one that goes on, counted from 1."""
        self.reply: ModelReplied | None = None
        """The last one; None before the first."""
        self.results: list[ToolReturned] = []
        """Of the last reply's calls, in the order in which they are carried out."""
        self.useless_in_a_row = 0
        """How many of the last replies held nothing to carry out."""
        self.nudged = False
        """Whether the model has been told so about the last reply."""
        self.submitted = False

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Of the last reply, in the order in which they are carried out: `submit` comes last."""
        calls = () if self.reply is None else self.reply.tool_calls
        return tuple(sorted(calls, key=lambda call: call.name == "submit"))

    @property
    def is_cut_off(self) -> bool:
        """Whether nothing of the last reply may be carried out."""
        return self.reply is not None and self.reply.finish_reason in CUT_OFF

    def begin_turn(self) -> None:
        """Whatever happens from now on belongs to the next turn."""
        self.turn = 1 if self.reply is None else self.reply.turn + 1

    def see(self, event: Event) -> None:
        """Take in the next event of the rollout."""
        match event:
            case ModelReplied():
                if event.usage is not None:
                    self.window.calibrate(self.conversation.size_bytes, event.usage.input_tokens)
                self.turn, self.reply, self.results, self.nudged = event.turn, event, [], False
                useless = event.finish_reason in CUT_OFF or not event.tool_calls
                self.useless_in_a_row = self.useless_in_a_row + 1 if useless else 0
            case ToolReturned():
                self.results.append(event)
            case Nudged():
                self.nudged = True
            case Submitted():
                self.submitted = True
            case Compacted() if not event.copied:
                # Of a copied one, another model may be meant.
                self.window.learn(event.limit_tokens)
            case _:
                pass
        self.conversation.see(event)
        self.ledger.see(event)
        self.repetition.see(event)
