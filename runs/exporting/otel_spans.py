"""A rollout as one trace of OpenTelemetry: `invoke_agent`, and in it a `chat` a reply and an `execute_tool` a call.

Times are those of the log. Ids follow from the run's id, so that a run that is sent twice is the same trace.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from runs.config import RunConfig
from runs.events import Culprit, Event, ModelReplied, Retried, RolloutStarted, ToolReturned
from runs.exporting.otel_attributes import (
    AGENT,
    Attributes,
    agent_attributes,
    chat_attributes,
    tool_attributes,
)
from runs.exporting.reward import reward_of
from runs.summary import end_of, started, summarize
from tasks.errors import UsageError

_FAILURES = (Culprit.SERVER, Culprit.MACHINE, Culprit.HARNESS)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def spans_of(config: RunConfig, events: Sequence[Event], *, content: bool) -> Sequence[ReadableSpan]:
    """The spans of one rollout; with what was said in them only if `content` is wanted.

    Raises:
        UsageError: the rollout was imported, and its file does not say when everything happened.
    """
    first = started(events)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource.create({"service.name": AGENT}),
        id_generator=_FixedIds(f"{config.id}/{first.rollout}"),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    _Trace(config, first, provider.get_tracer(AGENT), content=content).make(events)
    return exporter.get_finished_spans()


class _FixedIds(IdGenerator):
    """Ids that follow from what a trace is about."""

    def __init__(self, about: str) -> None:
        self._about = about
        self._spans = 0

    def generate_trace_id(self) -> int:
        """The first 16 bytes of a hash."""
        return self._hash(16, "trace")

    def generate_span_id(self) -> int:
        """The first 8 bytes of a hash."""
        self._spans += 1
        return self._hash(8, f"span {self._spans}")

    def _hash(self, size: int, what: str) -> int:
        # Zero is no valid id.
        return int.from_bytes(sha256(f"{self._about} {what}".encode()).digest()[:size], "big") or 1


class _Trace:
    """Makes the spans of one rollout."""

    def __init__(self, config: RunConfig, first: RolloutStarted, tracer: Tracer, *, content: bool) -> None:
        self._config = config
        self._first = first
        self._tracer = tracer
        self._content = content
        self._arguments: dict[str, str] = {}
        self._retries: list[Retried] = []

    def make(self, events: Sequence[Event]) -> None:
        """Make and end all spans."""
        attributes = agent_attributes(self._config, self._first, events, content=self._content)
        root = self._tracer.start_span(f"invoke_agent {AGENT}", attributes=attributes, start_time=_ns(self._first))
        context = set_span_in_context(root)
        # A fork's copied history happened in the trace of the rollout that it comes from.
        for event in (event for event in events if not event.copied):
            if isinstance(event, Retried):
                self._retries.append(event)
            elif isinstance(event, ModelReplied):
                self._reply(event, context)
            elif isinstance(event, ToolReturned):
                self._result(event, context)
        self._conclude(root, events)

    def _reply(self, event: ModelReplied, context: Context) -> None:
        attributes = chat_attributes(self._config, self._first, event, content=self._content)
        span = self._start(f"chat {self._first.model}", event, context, SpanKind.CLIENT, attributes)
        for retry in self._retries:
            span.add_event("retry", {"attempt": retry.attempt, "error": retry.error}, _ns(retry))
        span.end(_ns(event))
        self._retries = []
        self._arguments = {call.id: call.arguments for call in event.tool_calls}

    def _result(self, event: ToolReturned, context: Context) -> None:
        attributes = tool_attributes(self._config, self._first, event, self._arguments, content=self._content)
        span = self._start(f"execute_tool {event.tool}", event, context, SpanKind.INTERNAL, attributes)
        if "error.type" in attributes:
            span.set_status(Status(StatusCode.ERROR, event.reply.text))
        span.end(_ns(event))

    def _start(
        self, name: str, event: ModelReplied | ToolReturned, context: Context, kind: SpanKind, attributes: Attributes
    ) -> Span:
        if event.seconds is None:
            raise _no_times(self._first)
        began = _ns(event) - round(event.seconds * 1e9)
        return self._tracer.start_span(name, context, kind, attributes, start_time=began)

    def _conclude(self, root: Span, events: Sequence[Event]) -> None:
        last = events[-1]
        if reward := reward_of(summarize(events)):
            found: Attributes = {"gen_ai.evaluation.name": "speedup", "gen_ai.evaluation.score.label": reward.verdict}
            if reward.speedup is not None:
                found["gen_ai.evaluation.score.value"] = reward.speedup
            root.add_event("gen_ai.evaluation.result", found, _ns(last))
        ended = end_of(events)
        if ended is not None and ended.culprit in _FAILURES:
            root.set_attribute("error.type", ended.reason.value)
            root.set_status(Status(StatusCode.ERROR, ended.message))
        root.end(_ns(last))


def _ns(event: Event) -> int:
    """Nanoseconds since 1970, exactly."""
    if event.time is None:
        raise UsageError(
            f"Event {event.sequence} of the transcript has no time: it was imported from a file that does not say when "
            "it happened. Spans need times; export the run as atif or chat."
        )
    return (event.time - _EPOCH) // timedelta(microseconds=1) * 1000


def _no_times(first: RolloutStarted) -> UsageError:
    return UsageError(
        f"The transcript of {first.rollout} does not say how long replies and calls took: it was imported. Spans need "
        "times; export the run as atif or chat."
    )
