"""Rollouts as OpenTelemetry spans: what a collector receives, parsed from the protobuf it is sent."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs OpenTelemetry: pip install -e '.[otel]'")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs OpenTelemetry: pip install -e '.[otel]'")

from foreign_files import ATIF, command, imported
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from sample_transcripts import BEGAN, GOOD, config, events, reply_of

from runs.config import ModelOptions, RunConfig
from runs.events import Ended, EndReason, Event, ModelReplied, Retried, ToolReturned, Usage
from runs.exporting import otel_send
from runs.log import TranscriptLog
from runs.store import create_run
from tasks.errors import UnavailableError, UsageError
from tools.results import Fault
from tools.verdict import Verdict

pytestmark = pytest.mark.server
INTERNAL, CLIENT = Span.SpanKind.SPAN_KIND_INTERNAL, Span.SpanKind.SPAN_KIND_CLIENT


class Collector:
    """Takes spans as a collector does, and answers with a status."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[str, str, ExportTraceServiceRequest]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                message = ExportTraceServiceRequest.FromString(body)
                collector.requests.append((self.path, self.headers["Content-Type"], message))
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for _, _, request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    made = Collector()
    yield made
    made.close()


def attributes(values: Any) -> dict[str, object]:
    return {item.key: _value(item.value) for item in values}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, str(kind))


def timed_events() -> list[Event]:
    """The sample transcript with a time of its own for each event: each comes five seconds after the one before."""
    return [event.model_copy(update={"time": BEGAN + timedelta(seconds=5 * n)}) for n, event in enumerate(events())]


def write(root: Path, changed: list[Event], made: RunConfig | None = None) -> Path:
    run = create_run(root, made or config())
    with TranscriptLog(run.transcript("rollout-1")) as log:
        for event in changed:
            log.append(event)
    return run.path


def sent(collector: Collector, tmp_path: Path, changed: list[Event], *options: str) -> list[Span]:
    path = write(tmp_path, changed)
    done = command("export", path, "--to", "otlp", "--endpoint", collector.url, *options)
    assert done.exit_code == 0, done.exception
    return collector.spans


def named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def nanoseconds(time: datetime) -> int:
    return int((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000_000


def test_a_rollout_is_a_trace_of_replies_and_calls(collector: Collector, tmp_path: Path) -> None:
    spans = sent(collector, tmp_path, timed_events())
    assert sorted(span.name for span in spans) == [
        "chat test-model",
        "chat test-model",
        "execute_tool compile_kernel",
        "execute_tool compile_kernel",
        "execute_tool submit",
        "invoke_agent kernelwright",
    ]
    (root,) = named(spans, "invoke_agent kernelwright")
    assert root.parent_span_id == b""
    assert {span.parent_span_id for span in spans if span is not root} == {root.span_id}
    assert {span.trace_id for span in spans} == {root.trace_id}
    assert len({span.span_id for span in spans}) == 6
    kinds = {span.name.split()[0]: span.kind for span in spans}
    assert kinds == {"invoke_agent": INTERNAL, "chat": CLIENT, "execute_tool": INTERNAL}
    ((path, content_type, _),) = collector.requests
    assert (path, content_type) == ("/v1/traces", "application/x-protobuf")


def test_times_are_those_of_the_log(collector: Collector, tmp_path: Path) -> None:
    """A reply is logged when it came, four seconds after it was asked for; a result three after its call."""
    spans = sent(collector, tmp_path, timed_events())
    began = nanoseconds(BEGAN)
    (root,) = named(spans, "invoke_agent kernelwright")
    last = len(events()) - 1
    assert (root.start_time_unix_nano - began, root.end_time_unix_nano - began) == (0, 5 * last * 10**9)
    chats = [(s.start_time_unix_nano - began, s.end_time_unix_nano - began) for s in named(spans, "chat test-model")]
    assert chats == [(1 * 10**9, 5 * 10**9), (16 * 10**9, 20 * 10**9)]
    (submit,) = named(spans, "execute_tool submit")
    assert (submit.start_time_unix_nano - began, submit.end_time_unix_nano - began) == (27 * 10**9, 30 * 10**9)


def test_keys_are_those_of_the_conventions(collector: Collector, tmp_path: Path) -> None:
    usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, reasoning_tokens=5)
    raw = {"id": "reply-1", "model": "test-model-2026"}
    changed = [
        event.model_copy(update={"usage": usage, "raw": raw}) if isinstance(event, ModelReplied) else event
        for event in timed_events()
    ]
    spans = sent(collector, tmp_path, changed)
    shared = {"gen_ai.conversation.id": f"{config().id}/rollout-1", "gen_ai.provider.name": "kernelwright"}
    (root,) = named(spans, "invoke_agent kernelwright")
    assert attributes(root.attributes) == {
        **shared,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "kernelwright",
        "gen_ai.request.model": "test-model",
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 40,
        "kernelwright.task": "causal_conv",
    }
    assert attributes(named(spans, "chat test-model")[0].attributes) == {
        **shared,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "test-model",
        "gen_ai.response.id": "reply-1",
        "gen_ai.response.model": "test-model-2026",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.reasoning.output_tokens": 5,
    }
    (submit,) = named(spans, "execute_tool submit")
    assert attributes(submit.attributes) == {
        **shared,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "submit",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c",
        "kernelwright.verdict": "correct",
        "kernelwright.candidate": GOOD.id,
    }


def test_the_worth_is_an_event_of_the_agents_span(collector: Collector, tmp_path: Path) -> None:
    (root,) = named(sent(collector, tmp_path, timed_events()), "invoke_agent kernelwright")
    (found,) = root.events
    assert found.name == "gen_ai.evaluation.result"
    assert attributes(found.attributes) == {
        "gen_ai.evaluation.name": "speedup",
        "gen_ai.evaluation.score.label": "correct",
        "gen_ai.evaluation.score.value": 2.0,
    }


def test_nothing_that_was_said_is_sent_unasked(collector: Collector, tmp_path: Path) -> None:
    sent(collector, tmp_path, timed_events())
    everything = b"".join(request.SerializeToString() for _, _, request in collector.requests)
    for words in (
        "You write kernels.",
        "Begin.",
        "Let me try.",
        "I think of shared memory.",
        "ModelNew",
        "the tool said",
    ):
        assert words.encode() not in everything


def test_what_was_said_is_sent_if_asked_for(collector: Collector, tmp_path: Path) -> None:
    spans = sent(collector, tmp_path, timed_events(), "--with-content")
    root = attributes(named(spans, "invoke_agent kernelwright")[0].attributes)
    assert json.loads(str(root["gen_ai.system_instructions"])) == [{"type": "text", "content": "You write kernels."}]
    assert json.loads(str(root["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "Begin."}]}
    ]
    chat = attributes(named(spans, "chat test-model")[0].attributes)
    (message,) = json.loads(str(chat["gen_ai.output.messages"]))
    assert (message["role"], message["finish_reason"]) == ("assistant", "tool_call")
    assert [part["type"] for part in message["parts"]] == ["reasoning", "text", "tool_call"]
    assert message["parts"][2]["name"] == "compile_kernel"
    submit = attributes(named(spans, "execute_tool submit")[0].attributes)
    assert submit["gen_ai.tool.call.arguments"] == "{}"
    assert submit["gen_ai.tool.call.result"] == "the tool said evaluated"


def test_retries_are_events_of_the_reply_that_came_of_them(collector: Collector, tmp_path: Path) -> None:
    first, *rest = timed_events()
    retry = Retried(turn=1, attempt=1, error="503", wait_s=1.0, time=BEGAN + timedelta(seconds=1))
    spans = sent(collector, tmp_path, [first, retry, *rest])
    (event,) = named(spans, "chat test-model")[0].events
    assert (event.name, event.time_unix_nano) == ("retry", nanoseconds(BEGAN) + 10**9)
    assert attributes(event.attributes) == {"attempt": 1, "error": "503"}
    assert not named(spans, "chat test-model")[1].events


def test_errors_are_the_machines_and_the_servers_never_a_wrong_candidate(collector: Collector, tmp_path: Path) -> None:
    fault = Fault(stage="verify", verdict=Verdict.UNAVAILABLE, message="no GPU", candidate=GOOD.id)
    *start, submit, _, _, ended = timed_events()
    assert isinstance(submit, ToolReturned) and isinstance(ended, Ended)
    broken = submit.model_copy(update={"reply": reply_of(fault, GOOD)})
    end = Ended(turn=2, time=ended.time, reason=EndReason.TOOL_FAULT, message="no GPU")
    spans = sent(collector, tmp_path, [*start, broken, end])
    errors = {span.name: attributes(span.attributes)["error.type"] for span in spans if span.status.code == 2}
    assert errors == {"execute_tool submit": "unavailable", "invoke_agent kernelwright": "tool_fault"}


def test_copied_history_is_in_the_trace_of_the_rollout_that_it_comes_from(collector: Collector, tmp_path: Path) -> None:
    changed = [event.model_copy(update={"copied": event.turn == 1}) for event in timed_events()]
    spans = sent(collector, tmp_path, changed)
    assert sorted(span.name for span in spans) == [
        "chat test-model",
        "execute_tool compile_kernel",
        "execute_tool submit",
        "invoke_agent kernelwright",
    ]
    (root,) = named(spans, "invoke_agent kernelwright")
    assert attributes(root.attributes)["gen_ai.usage.input_tokens"] == 100


def test_a_run_sent_twice_is_the_same_trace(collector: Collector, tmp_path: Path) -> None:
    path = write(tmp_path, timed_events())
    for _ in range(2):
        command("export", path, "--to", "otlp", "--endpoint", collector.url)
    once, again = (
        {(span.trace_id, span.span_id) for span in request.resource_spans[0].scope_spans[0].spans}
        for _, _, request in collector.requests
    )
    assert once == again


def test_the_server_of_the_model_is_named(collector: Collector, tmp_path: Path) -> None:
    made = config().model_copy(update={"base_url": "https://models.example/v1"})
    command("export", write(tmp_path, timed_events(), made), "--to", "otlp", "--endpoint", collector.url)
    found = attributes(collector.spans[0].attributes)
    assert (found["server.address"], found["server.port"]) == ("models.example", 443)
    assert found["gen_ai.provider.name"] == "openai"


@pytest.mark.parametrize(
    ("update", "provider"),
    [({"recorded_from": "another run"}, "kernelwright"), ({"model_options": ModelOptions()}, "openai")],
)
def test_a_model_without_a_server_has_no_other_provider(
    collector: Collector, tmp_path: Path, update: dict[str, object], provider: str
) -> None:
    path = write(tmp_path, timed_events(), config().model_copy(update=update))
    command("export", path, "--to", "otlp", "--endpoint", collector.url)
    assert attributes(collector.spans[0].attributes)["gen_ai.provider.name"] == provider


def test_many_spans_go_in_several_requests(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel_send, "_TOGETHER", 4)
    assert len(sent(collector, tmp_path, timed_events())) == 6
    assert len(collector.requests) == 2


@pytest.mark.parametrize("ending", ["", "/", "/v1/traces"])
def test_the_path_is_added_where_it_is_missing(collector: Collector, tmp_path: Path, ending: str) -> None:
    command("export", write(tmp_path, timed_events()), "--to", "otlp", "--endpoint", collector.url + ending)
    assert [path for path, _, _ in collector.requests] == ["/v1/traces"]


def test_the_endpoint_may_come_from_the_environment(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, timed_events())
    without = command("export", path, "--to", "otlp")
    assert isinstance(without.exception, UsageError)
    assert "--endpoint URL" in str(without.exception)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    assert command("export", path, "--to", "otlp").exit_code == 0
    assert len(collector.spans) == 6


def test_a_collector_that_refuses_is_told(collector: Collector, tmp_path: Path) -> None:
    collector.status = 401
    done = command("export", write(tmp_path, timed_events()), "--to", "otlp", "--endpoint", collector.url)
    assert isinstance(done.exception, UnavailableError)
    assert f"{collector.url} did not take the spans; 0 of 6 were sent" in str(done.exception)


def test_an_imported_run_without_times_has_no_spans(collector: Collector, tmp_path: Path) -> None:
    run = imported(tmp_path, json.dumps(ATIF))
    done = command("export", run.path, "--to", "otlp", "--endpoint", collector.url)
    assert isinstance(done.exception, UsageError)
    assert "Spans need times" in str(done.exception)
    assert not collector.requests
